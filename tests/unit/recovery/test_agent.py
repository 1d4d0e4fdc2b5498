"""The agent replaces servers: with a server and a client that only speak the protocols."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from job import PYFT, wait_for
from ranks import free_port
from stand_ins import CLIENT, Start, faults, given, scrape, wait_serving, wait_standby

from pyft.errors import NOT_INJECTED


def test_a_killed_server_is_replaced(start: Start, tmp_path: Path) -> None:
    job = start(2, PYFT_FAULT="cut.copying", SOFTGPU_FAULT="slow")
    wait_serving(job, 1)
    os.kill(job.victim("server"), signal.SIGKILL)
    assert job.wait(30) == 0
    job.assert_nothing_left()
    assert [line[:8] for line in job.output().splitlines()][-2:] == ["status 5", "status 1"]
    first, second = given(tmp_path)
    assert (first["fds"], first["epoch"], first["PYFT_FAULT"]) == (5, 1, "cut.copying")
    plain = {"epoch": 2, "fds": 5, "page": 2, "mode": 0, "waited": False}
    plain |= {"PYFT_DIVERGENCE": "strict"}
    plain |= {"seed": first["seed"]}
    assert second == plain, "no fault comes twice"
    (fault,) = faults(tmp_path)
    assert fault["fault"] == "server-killed"
    assert (fault["outcome"], fault["verdict"]) == ("recovered", "exact")
    assert (fault["epoch_to"], fault["gpu_to"], fault["replayed_entries"]) == (2, 0, 12)
    assert all(ms >= 0 for ms in fault["phases_ms"].values())
    assert "rank [0] goes on after" in job.errors()
    assert "1 of 1 recovered, goodput 0." in job.errors()


def test_the_agent_says_what_it_decides_if_asked(start: Start, tmp_path: Path) -> None:
    job = start(2, ACTS="die", PYFT_LOG="warning,plan=debug,agent=debug")
    assert job.wait(30) == 0
    said = job.errors()
    dead = said.index("[debug agent pid ")
    for words in ("is dead: Fault(", "event Exited(id=0, epoch=1", "action Start(id=0, epoch=2"):
        dead = said.index(words, dead)
    assert "[trace plan" not in said


def test_a_lost_gpu_is_left_and_the_next_one_waits_for_a_spare(
    start: Start, tmp_path: Path
) -> None:
    job = start(3, "--inject", "gpu-lost,rank=0", "--spares", "1", ACTS=",999")
    wait_for(lambda: "waiting for" in job.output(), 20, "no spare is left")
    assert "is lost: API code [999]" in job.errors()
    assert job.errors().count("waiting for `pyft spare --gpu G`") == 1
    shown = job.order("status")
    assert "0 spares left" in shown
    assert "rank 0 pid " in shown
    assert ": waiting for a GPU for " in shown
    assert ", in place of GPU 1 (gpu-lost: API code [999]" in shown
    assert job.ask("replace", "--rank", "0", "--gpu", "1").stderr.count("is lost: API code")
    assert job.ask("spare", "--gpu", "8").returncode == 1
    assert job.ask("spare", "--gpu", "5").returncode == 0
    assert job.wait(30) == 0
    places = [
        server.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0] for server in given(tmp_path)
    ]
    assert places == ["0", "1", "5"]
    assert [fault["outcome"] for fault in faults(tmp_path)] == ["failed again", "recovered"]


def test_no_spare_is_an_error_if_asked_for(start: Start, tmp_path: Path) -> None:
    job = start(2, "--on-no-spare", "fail", ACTS="999")
    assert job.wait(30) == 46
    assert "it is not replaced: no GPU is left for rank [0]: GPU [0] is lost" in job.output()
    assert faults(tmp_path)[0]["outcome"].startswith("given up: no GPU is left")


def test_a_fault_during_recovery_starts_it_again(start: Start, tmp_path: Path) -> None:
    job = start(4, ACTS="710,die,710")
    assert job.wait(30) == 0
    assert [server["mode"] for server in given(tmp_path)] == [0, 0, 0, 1]
    outcomes = [(fault["fault"], fault["outcome"]) for fault in faults(tmp_path)]
    assert outcomes == [
        ("context-lost", "failed again"),
        ("server-crash", "failed again"),
        ("context-lost", "recovered"),
    ]
    assert "exit [75], the last words" in faults(tmp_path)[0]["evidence"]


def test_a_replay_that_differs_is_repeated_entry_by_entry(start: Start, tmp_path: Path) -> None:
    job = start(4, "--divergence", "report", ACTS="die,differ,die,late", AFTER_S="1")
    assert job.wait(30) == 0
    assert [server["mode"] for server in given(tmp_path)] == [0, 0, 1, 1]
    assert {server["PYFT_DIVERGENCE"] for server in given(tmp_path)} == {"report"}
    found = [(fault["fault"], fault["verdict"]) for fault in faults(tmp_path)]
    assert found == [("server-crash", ""), ("diverged", ""), ("server-crash", "equivalent")]
    assert faults(tmp_path)[-1]["differed_seq"] == 33, "it was noticed after the rank went on"


def test_a_replay_that_differs_again_is_the_end(start: Start, tmp_path: Path) -> None:
    job = start(4, ACTS="die,differ,differ")
    assert job.wait(30) == 46
    assert "it is not replaced: exit [77], one entry" in job.output()
    assert faults(tmp_path)[-1]["verdict"] == "diverged"


def test_a_silent_server_is_ended_and_replaced(start: Start, tmp_path: Path) -> None:
    job = start(2, ACTS="mute", PYFT_HEARTBEAT_TIMEOUT_S="1")
    assert job.wait(30) == 0
    assert faults(tmp_path)[0]["fault"] == "silent"


def test_a_stuck_device_is_not_one_that_waits_for_others(start: Start, tmp_path: Path) -> None:
    job = start(2, ACTS="stuck", PYFT_HANG_S="1")
    assert job.wait(30) == 0
    (fault,) = faults(tmp_path)
    assert (fault["fault"], fault["outcome"]) == ("hang", "recovered")
    assert fault["noticed"] > 3


def test_orders(start: Start, tmp_path: Path) -> None:
    port = free_port()
    job = start(4, "--spares", "1", "--metrics-port", str(port))
    wait_serving(job, 1)
    assert "rank [1] has no server" in job.ask("replace", "--rank", "1").stderr
    assert job.ask("inject", "--rank", "0", "--fault", "boom").returncode == 2
    assert job.ask("replace", "--rank", "0").returncode == 0
    wait_serving(job, 2)
    assert job.ask("drain", "--gpu", "0").returncode == 0
    wait_serving(job, 3)
    assert "no spare" in job.ask("drain", "--gpu", "1").stderr
    answer = scrape(port)
    assert 'pyft_faults_total{class="ordered",rank="0"} 2.0' in answer
    assert "# TYPE pyft_faults_total counter" in answer
    assert 'pyft_server_alive{device="0",rank="0"} 1.0' in answer
    assert job.ask("inject", "--rank", "0", "--fault", "server-kill").returncode == 0
    assert job.wait(30) == 0
    assert [fault["fault"] for fault in faults(tmp_path)] == ["ordered", "ordered", "server-killed"]


def test_a_server_that_stood_by_takes_over(start: Start, tmp_path: Path) -> None:
    job = start(3, "--spares", "1", ACTS=",die")
    wait_serving(job, 1)
    wait_standby(job)
    assert job.ask("inject", "--rank", "0", "--fault", "gpu-lost").returncode == 0
    assert job.wait(30) == 0
    assert [server["waited"] for server in given(tmp_path)] == [False, True, False]
    assert given(tmp_path)[1]["CUDA_VISIBLE_DEVICES"] == "1,0"
    job.assert_nothing_left()


def saying(words: str) -> tuple[str, ...]:
    """Return the client, which first does this."""
    return (sys.executable, "-c", CLIENT.replace("seen, deadline", f"{words}\nseen, deadline", 1))


def test_a_client_without_a_number_says_which_rank_it_is(start: Start, tmp_path: Path) -> None:
    place = 'CONTROL_PAGE["communicator"].put(fds[1], 4 << 32 | 3); agent.send(b"0")'
    job = start(2, command=saying(place))
    wait_serving(job, 1)
    wait_for(lambda: job.meta()["live"][0]["rank"] == 3, 20, "its rank is known")
    job.kill_agent()
    assert job.ask("replace", "--rank", "0").returncode == 1
    assert job.ask("replace", "--rank", "3").returncode == 0
    assert job.wait(30) == 0
    assert "rank [3] goes on after" in job.errors()
    assert faults(tmp_path)[0]["rank"] == 3
    assert list(job.log_dir.glob("rank3-pid*-dev0.ring"))


def test_a_replay_on_memory_of_others_proves_nothing_about_the_program(
    start: Start, tmp_path: Path
) -> None:
    imports = 'CONTROL_PAGE["shared"].put(fds[1], layout.Shared.IMPORTS)'
    job = start(9, command=saying(imports), ACTS=",700,700")
    wait_serving(job, 1)
    os.kill(job.victim("server"), signal.SIGKILL)
    assert job.wait(30) == 46
    assert "gets the error itself" not in job.errors()
    assert "API code [700]" in faults(tmp_path)[-1]["outcome"]
    assert "memory of other processes" in faults(tmp_path)[-1]["outcome"]


def test_places_of_faults_reach_one_server(start: Start, tmp_path: Path) -> None:
    faults = ("server-kill,rank=0,step=2,call=7", "hang,rank=1,step=1")
    options = [word for fault in faults for word in ("--inject", fault)]
    job = start(2, *options, ACTS="die")
    assert job.wait(30) == NOT_INJECTED
    first, second = given(tmp_path)
    assert first["PYFT_KILL_AT"] == "kill:7,cut=2,rank=0,note=0"
    assert "PYFT_KILL_AT" not in second


def test_impossible_options_are_refused(native: Path) -> None:
    together = {"PYFT_REPLAY": "all"}
    for words, settings, text in (
        (["--protect", "jit"], together, "--protect jit needs ranks that are replaced alone"),
        (["--inject", "boom,rank=0"], {}, "fault kind [boom] does not exist"),
    ):
        line = [PYFT, "run", "--gpus", "soft:1", *words, "--", "true"]
        result = subprocess.run(line, capture_output=True, text=True, env=os.environ | settings)
        assert result.returncode == 2
        assert text in result.stderr
