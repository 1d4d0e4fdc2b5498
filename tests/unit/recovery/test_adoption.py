"""An agent is killed: the next one takes over, and nobody else notices."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from job import PYFT, Job, wait_for
from ranks import free_port
from stand_ins import CLIENT, Start, faults, given, scrape, wait_serving, wait_standby

from pyft.agent.process.notes import make_note, read_note


def test_servers_that_work_go_on(start: Start, tmp_path: Path) -> None:
    job = start(2)
    wait_serving(job, 1)
    server, client = job.victim("server"), job.victim("client")
    for _ in range(4):
        job.kill_agent()
    (live,) = job.meta()["live"]
    assert (live["server_pid"], live["pid"], live["epoch"]) == (server, client, 1)
    assert job.ask("replace", "--rank", "0").returncode == 0
    assert job.wait(30) == 0
    job.assert_nothing_left()
    assert len(given(tmp_path)) == 2
    assert [fault["fault"] for fault in faults(tmp_path)] == ["ordered"]
    assert job.meta()["recovery"]["agent_restarts"] == 4
    assert "1 of 1 recovered" in job.errors()
    assert "agent restarted [4] times" in job.errors()


def test_a_recovery_is_begun_again(start: Start, tmp_path: Path) -> None:
    job = start(3, ACTS=",restores")
    wait_serving(job, 1)
    os.kill(job.victim("server"), signal.SIGKILL)
    wait_for(lambda: len(given(tmp_path)) == 2, 20, "a new server")
    interrupted = job.victim("server")
    job.kill_agent()
    assert job.wait(30) == 0
    assert not Path(f"/proc/{interrupted}").exists()
    (fault,) = faults(tmp_path)
    assert (fault["fault"], fault["outcome"], fault["epoch_to"]) == (
        "server-killed",
        "recovered",
        3,
    )
    assert sum(fault["phases_ms"].values()) == pytest.approx(
        (fault["ended"] - fault["began"]) * 1e3, rel=0.01
    )


def test_a_death_that_no_agent_saw(start: Start, tmp_path: Path) -> None:
    job = start(2)
    wait_serving(job, 1)
    with job.without_agent():
        os.kill(job.victim("server"), signal.SIGKILL)
    assert job.wait(30) == 0
    assert [fault["fault"] for fault in faults(tmp_path)] == ["server-killed"]


def test_a_gpu_stays_lost_and_a_rank_waits_on(start: Start, tmp_path: Path) -> None:
    job = start(3, "--spares", "1", ACTS="999,999")
    wait_for(lambda: "waiting for" in job.output(), 20, "no spare is left")
    job.kill_agent()
    assert job.ask("replace", "--rank", "0", "--gpu", "1").stderr.count("is lost: API code")
    assert job.ask("spare", "--gpu", "5").returncode == 0
    assert job.wait(30) == 0
    assert given(tmp_path)[-1]["CUDA_VISIBLE_DEVICES"].startswith("5")
    assert [f["outcome"] for f in faults(tmp_path)] == ["failed again", "recovered"]


def test_the_program_gets_its_own_error_although_agents_die(start: Start, tmp_path: Path) -> None:
    job = start(5, "--spares", "1", ACTS="710,restores,710,710")
    wait_for(lambda: len(given(tmp_path)) == 2, 20, "a second server")
    job.kill_agent()
    assert job.wait(30) == 0
    modes = [server["mode"] for server in given(tmp_path)]
    assert modes == [0, 0, 0, 1, 2], "what has failed where is not forgotten"
    assert faults(tmp_path)[-1]["outcome"] == "error delivered"


def test_faults_and_orders_that_come_after(start: Start, tmp_path: Path) -> None:
    options = ("--inject", "gpu-lost,rank=0,server=3", "--metrics-port", str(port := free_port()))
    job = start(4, "--spares", "2", *options)
    wait_serving(job, 1)
    job.kill_agent()
    status = subprocess.run([PYFT, "status", str(job.log_dir)], capture_output=True, text=True)
    assert f"server pid {job.victim('server')} serving" in status.stdout
    assert job.ask("inject", "--rank", "0", "--fault", "server-kill").returncode == 0
    wait_serving(job, 2)
    job.kill_agent()
    assert "pyft_agent_restarts_total 2.0" in scrape(port)
    assert job.ask("drain", "--gpu", "0").returncode == 0
    assert job.wait(30) == 0
    classes = [fault["fault"] for fault in faults(tmp_path)]
    assert classes == ["server-killed", "ordered", "gpu-lost"]


def test_a_client_that_comes_while_no_agent_lives(start: Start, tmp_path: Path) -> None:
    go, asked = tmp_path / "go", tmp_path / "asked"
    program = tmp_path / "late.py"
    late = CLIENT.replace("message, fds", f"open({str(asked)!r}, 'w')\nmessage, fds", 1)
    program.write_text(f"import os\nwhile not os.path.exists({str(go)!r}): pass\n{late}")
    # The first client, whose epoch never comes, is ended in the end.
    both = f'{sys.executable} -c "$0" & {sys.executable} {program}; code=$?; kill $!; exit $code'
    job = start(2, command=("sh", "-c", both, CLIENT.replace('["WANTED"]', '["NEVER"]')), NEVER="9")
    wait_serving(job, 1)
    with job.without_agent():
        go.touch()
        wait_for(asked.exists, 20, "the late client has asked")
    assert job.wait(30) == 0, job.errors()
    assert [server["epoch"] for server in given(tmp_path)] == [1, 2], "each has an epoch of its own"
    first, second = (server["seed"] for server in given(tmp_path))
    assert first == second != 0, "their contents can be compared"
    assert len(job.meta()["channels"]) == 2


def test_a_client_that_ends_while_no_agent_lives(start: Start, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f'{sys.executable} -c "$0"; until [ -e {go} ]; do sleep 0.02; done; exit 5'
    job = start(9, command=("sh", "-c", script, CLIENT))
    wait_serving(job, 1)
    server = job.victim("server")
    with job.without_agent():
        os.kill(job.victim("client"), signal.SIGKILL)
    wait_for(lambda: server not in job.processes(), 20, "its server ends")
    wait_for(lambda: len(job.meta()["channels"]) == 1, 20, "its trace is saved")
    go.touch()
    assert job.wait(10) == 5
    job.assert_nothing_left()
    assert job.meta()["recovery"]["agent_restarts"] == 1, job.errors()
    assert faults(tmp_path) == []


# What the agent says to its supervisor, from its start to the end of a job with one fault: 26 things.
@pytest.mark.parametrize("number", range(1, 24, 2))
def test_it_may_die_between_any_two_things_that_it_does(
    start: Start, tmp_path: Path, number: int
) -> None:
    options = ("--spares", "1", "--inject", "gpu-lost,rank=0")
    job = start(2, *options, PYFT_FAULT=f"agent.says:{number}")
    assert job.wait(30) == 0, job.errors()
    job.assert_nothing_left()
    (fault,) = faults(tmp_path)
    assert fault["fault"] == "gpu-lost"
    # The client ends when a server of the second epoch works. It may be faster than the next agent;
    # and the second epoch may be that of its first server, if the one before was no client's yet.
    assert fault["outcome"] in ("recovered", "client ended")
    if fault["outcome"] == "recovered":
        assert given(tmp_path)[-1]["CUDA_VISIBLE_DEVICES"].startswith("1")
    assert job.meta()["recovery"]["agent_restarts"] == 1
    assert len(job.meta()["channels"]) == 1
    assert "Traceback" not in job.errors()


@pytest.mark.parametrize("number", range(6, 10))
def test_the_next_one_hears_a_second_client(start: Start, tmp_path: Path, number: int) -> None:
    """Wherever the first one was between a client's request and its answer."""
    program, go = tmp_path / "late.py", tmp_path / "go"
    program.write_text(f"import os\nwhile not os.path.exists({str(go)!r}): pass\n{CLIENT}")
    # The first client waits for what never comes; it has to live when the second one has its answer.
    ends = "code=$?; kill $!; wait $!; [ $? = 143 ] && exit $code; exit 9"
    both = f'{sys.executable} -c "$0" & {sys.executable} {program}; {ends}'
    environment = {"PYFT_FAULT": f"agent.says:{number}", "NEVER": "9"}
    client = CLIENT.replace('["WANTED"]', '["NEVER"]')
    job = start(1, command=("sh", "-c", both, client), **environment)
    wait_for(lambda: "a new agent" in job.errors(), 20, "the next agent works")
    # Not after how many servers: one that was no client's yet may have been given its memory.
    wait_for(lambda: "status 1" in job.output(), 20, "the first client is served")
    go.touch()
    assert job.wait(30) == 0, job.errors()
    assert len(job.meta()["channels"]) == 2


@pytest.mark.parametrize("number", range(14, 24, 2))
def test_a_client_learns_of_an_error_although_an_agent_dies(start: Start, number: int) -> None:
    options = ("--protect", "none", "--inject", "server-kill,rank=0")
    job = start(2, *options, PYFT_FAULT=f"agent.says:{number}")
    assert job.wait(30) == 46, job.errors()
    job.assert_nothing_left()
    assert "Traceback" not in job.errors()


def agents(job: Job) -> list[int]:
    """Return the living agents, whatever they have written down yet."""
    found = []
    for pid in job.processes():
        with contextlib.suppress(OSError):
            if "--supervisor-fd" in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                found.append(pid)
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGABRT])
def test_agents_that_never_work_end_the_job(start: Start, number: signal.Signals) -> None:
    job = start(9)
    wait_serving(job, 1)

    def ended() -> bool:
        living = agents(job)
        assert len(living) <= 1, "two agents"
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        return not job.processes()

    wait_for(ended, 20, "the job ends")
    assert job.wait(20) == 1
    text = "[3] agents in a row have ended before they worked, the last one was killed by signal"
    assert (
        f"{text} [{number.value} {number.name}]: ended the command and its servers" in job.errors()
    )
    job.assert_nothing_left()
    assert list(job.log_dir.glob("*.ring"))


@pytest.mark.parametrize("who", ["launcher", "supervisor", "command"])
def test_all_ends_as_ever_after_an_adoption(start: Start, who: str) -> None:
    job = start(9)
    wait_serving(job, 1)
    job.kill_agent()
    if who == "command":
        job.send(signal.SIGTERM)
    else:
        os.kill(job.victim(who), signal.SIGKILL)
    assert job.wait(20) == {"launcher": -9, "supervisor": 1, "command": 143}[who]
    job.assert_nothing_left(20)
    sentences = {
        "launcher": "the launcher was killed: ended the command and its servers",
        "supervisor": "] was killed by signal [9 SIGKILL]: ended the command and its servers",
        "command": "0 of 0 recovered",
    }
    assert sentences[who] in job.errors()


def test_notes_can_be_read_again() -> None:
    fd = make_note("test", {"name": "\udc80", "list": [1, [2, "3"]]})
    copy = os.dup(fd)
    assert read_note(fd) == read_note(copy) == {"name": "\udc80", "list": [1, [2, "3"]]}


def test_all_servers_of_a_job_have_its_secret(start: Start, tmp_path: Path) -> None:
    """The first one, a replacement by the next agent, and one that stood by; the program has not."""
    script = 'echo "program [$FLEXCCL_JOB_TOKEN]"; exec "$0" -c "$1"'
    command = ("sh", "-c", script, sys.executable, CLIENT)
    job = start(4, "--spares", "1", command=command, SHOW_TOKEN="1")
    wait_serving(job, 1)
    job.kill_agent()
    for servers in (2, 3):
        assert job.ask("replace", "--rank", "0").returncode == 0
        wait_serving(job, servers)
    wait_standby(job)
    assert job.ask("inject", "--rank", "0", "--fault", "gpu-lost").returncode == 0
    assert job.wait(30) == 0
    shown = given(tmp_path)
    assert shown[-1]["waited"]
    (token,) = {server["token"] for server in shown}
    assert len(token) == 32
    assert "program []" in job.output()
    assert token not in job.output() + job.errors() + (job.log_dir / "meta.json").read_text()


def test_the_users_secret_is_kept(start: Start, tmp_path: Path) -> None:
    job = start(1, SHOW_TOKEN="1", FLEXCCL_JOB_TOKEN="of two jobs")
    assert job.wait(30) == 0
    assert [server["token"] for server in given(tmp_path)] == ["of two jobs"]
