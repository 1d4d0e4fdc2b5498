"""The backend over the vendor's libraries, with the soft GPU's under their names."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from job import TRAIN, Job, wait_for
from recovery_run import STEPS, command, lines, undisturbed
from test_programs import run
from vendor import build_nccl, environment, without

from pyft._native.driver import DriverError
from pyft._native.driver import gpus as driver_gpus

PROGRAMS = Path(__file__).with_name("programs")
LATE_RANK = str(PROGRAMS / "late_rank.py")
OUT_OF_MEMORY = str(PROGRAMS / "out_of_memory.py")
NEVER_MEET = str(PROGRAMS / "never_meet.py")
MANY_RANKS = str(PROGRAMS / "many_ranks.py")
NCCL_SETTINGS = str(PROGRAMS / "nccl_settings.py")
FAULT_OF_ONE = "server-kill,rank=1,step=3,call=5"


def train(
    folder: Path,
    options: tuple[str, ...],
    gpus: str = "0",
    program: str = TRAIN,
    arguments: tuple[str, ...] = STEPS,
    meanwhile: Callable[[Job], None] = lambda job: None,
    **variables: str,
) -> tuple[list[str], dict, str]:
    """Train on GPUs of the driver; return results, the report and what was said."""
    report = folder / "report.json"
    job = Job(
        folder,
        command(program, gpus.count(",") + 1, arguments),
        options=("--gpus", gpus, *options, "--report", str(report)),
        environment=environment(folder / "driver", len(set(gpus.split(",")))) | variables,
    )
    try:
        meanwhile(job)
        assert job.wait(120) == 0, job.errors()
        job.assert_nothing_left()
        return lines(job), json.loads(report.read_text())["recovery"], job.errors()
    finally:
        job.kill_everything()


@pytest.mark.parametrize("protect", ["none", "snapshot"])
def test_training_has_the_bits_of_the_soft_gpu(tmp_path: Path, protect: str) -> None:
    got, _, said = train(tmp_path, ("--protect", protect))
    assert tuple(got) == undisturbed(TRAIN, 1, STEPS)
    assert "host functions" not in said, "streams write their completion words"


@pytest.mark.parametrize(
    ("fault", "variables"),
    [
        ("server-killed", {}),
        ("context-lost", {"SOFTGPU_FAULT": "error:400,code=700"}),
    ],
)
def test_a_fault_is_repaired(tmp_path: Path, fault: str, variables: dict[str, str]) -> None:
    inject = () if variables else ("--inject", "server-kill,rank=0,step=2,call=40")
    got, report, said = train(tmp_path, inject, **variables)
    assert tuple(got) == undisturbed(TRAIN, 1, STEPS)
    assert [one["fault"] for one in report["faults"]] == [fault], said
    assert (report["recovered"], report["verdict"]) == (1, "exact"), said


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("graphs", {}),
        ("callbacks", {}),
        ("expandable", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
        ("registered", {}),
    ],
)
def test_programs_get_what_they_get_without_pyft(
    tmp_path: Path, name: str, settings: dict[str, str]
) -> None:
    """They print what they find; test_programs.py and test_callbacks.py say what that is."""
    job = Job(
        tmp_path,
        [sys.executable, str(PROGRAMS / f"{name}.py")],
        options=("--gpus", "0"),
        environment=environment(tmp_path / "driver") | settings,
    )
    try:
        assert job.wait(120) == 0, job.errors()
    finally:
        job.kill_everything()
    found = job.output().splitlines()
    assert len(found) > 3
    assert found == run(f"{name}.py", "direct", **settings).splitlines()


def test_a_server_runs_on_the_processors_nearest_to_its_gpu(tmp_path: Path) -> None:
    """Of a host with two sockets, as its folder sys tells."""
    first, *_, last = sorted(os.sched_getaffinity(0)) * 2
    for name, text in {
        "system/node/online": "0-1",
        "system/node/node0/cpulist": f"{first}",
        "system/node/node1/cpulist": f"{last}",
        "pci/devices/0000:01:00.0/numa_node": "1",
    }.items():
        root = tmp_path / "host" / "sys" / ("bus" if name.startswith("pci") else "devices")
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)

    def runs_there(job: Job) -> bool:
        live = job.meta()["live"] if (job.log_dir / "meta.json").exists() else []
        status = Path(f"/proc/{live[0]['server_pid']}/status").read_text() if live else ""
        return f"Cpus_allowed_list:\t{last}\n" in status

    got, _, _ = train(
        tmp_path,
        (),
        meanwhile=lambda job: wait_for(lambda: runs_there(job), 60, "the server has its place"),
        PYFT_HOST_ROOT=str(tmp_path / "host"),
    )
    assert tuple(got) == undisturbed(TRAIN, 1, STEPS)


def test_servers_on_cuda_12(tmp_path: Path) -> None:
    """Its runtime lays out properties otherwise; programs built with it have names of their own."""
    driver = environment(tmp_path / "cuda12", release=12)
    runtime = tmp_path / "libcudart.so.12"
    build = ["cc", "-shared", "-xc", "/dev/null", f"-Wl,-soname,{runtime.name}", "-o", str(runtime)]
    subprocess.run(build, check=True)
    program = [sys.executable, str(PROGRAMS / "cuda12.py"), str(runtime)]
    job = Job(tmp_path, program, options=("--gpus", "0"), environment=driver)
    try:
        assert job.wait(120) == 0, job.errors()
    finally:
        job.kill_everything()
    assert job.output().splitlines() == run("cuda12.py", "direct").splitlines()
    inject = ("--inject", "server-kill,rank=0,step=2,call=40")
    got, report, said = train(tmp_path, inject, **driver)
    assert tuple(got) == undisturbed(TRAIN, 1, STEPS)
    assert (report["recovered"], report["verdict"]) == (1, "exact"), said


def test_a_driver_that_lacks_what_came_with_cuda_12_4(tmp_path: Path) -> None:
    """Where the parameters of kernels lie is found in their code."""
    driver = environment(tmp_path / "cuda12", release=12)
    lacks = ("cuFuncGetParamInfo", "cuFuncGetName", "cuModuleEnumerateFunctions")
    without(tmp_path / "cuda12", *lacks, "cuModuleGetFunctionCount")
    inject = ("--inject", "server-kill,rank=0,step=2,call=40")
    got, report, said = train(tmp_path, inject, **driver)
    assert tuple(got) == undisturbed(TRAIN, 1, STEPS)
    assert (report["recovered"], report["verdict"]) == (1, "exact"), said
    assert "parameters of a module's kernels" not in said


def test_a_runtime_of_another_cuda_is_named(tmp_path: Path) -> None:
    driver = environment(tmp_path / "driver") | {"PYFT_CUDA_RELEASE": "12"}
    job = Job(tmp_path, [sys.executable, TRAIN], options=("--gpus", "0"), environment=driver)
    try:
        assert job.wait(60) != 0
    finally:
        job.kill_everything()
    assert "[libcudart.so.12] does not load" in job.errors()


@pytest.mark.parametrize(("case", "call"), [("offload", 30), ("graph", 5)])
def test_pinned_memory_and_graphs_come_back(tmp_path: Path, case: str, call: int) -> None:
    program, arguments = str(PROGRAMS / "recovery_cases.py"), ("--case", case)
    fault = ("--inject", f"server-kill,rank=0,step=2,call={call}")
    got, report, said = train(tmp_path, fault, program=program, arguments=arguments)
    assert tuple(got) == undisturbed(program, 1, arguments)
    assert (report["recovered"], report["verdict"]) == (1, "exact"), said


def test_ranks_share_a_gpu(tmp_path: Path) -> None:
    """Every collective by way of host memory; the program compares each with what it must give."""
    train(tmp_path, ("--protect", "none"), "0,0", MANY_RANKS, ())


def test_one_of_two_ranks_on_a_gpu_is_replaced(tmp_path: Path) -> None:
    """What both have is copied within the GPU."""
    fault = "server-kill,rank=1,step=3,call=120"  # a step has some 200
    got, report, said = train(tmp_path, ("--inject", fault), "0,0", PYFT_CUT_EVERY="1")
    assert tuple(got) == undisturbed(TRAIN, 2, STEPS)
    assert (report["recovered"], report["verdict"]) == (1, "exact"), said
    assert report["faults"][0]["peer_bytes"] > 5e6, said


def test_one_of_two_ranks_gets_what_the_other_has_on_the_gpu(tmp_path: Path) -> None:
    """Copies within the device, which are read by way of the device and the host when needed."""

    def kill_when_the_other_one_keeps_it(job: Job) -> None:
        kept = r"device \[0\]: of .* are kept in GPUs only"  # as said by the server of rank 0
        wait_for(lambda: re.search(kept, job.errors()), 60, job.errors)
        job.order("inject", "--rank", "1", "--fault", "server-kill")

    steps = ("--steps", "14")  # those of four or five are needed to learn what stays in GPUs
    options = ("--protect", "jit")
    env = {"PYFT_CUT_EVERY": "1", "PYFT_PEER_MEMORY": "0"}
    got, report, said = train(
        tmp_path,
        options,
        "0,0",
        arguments=steps,
        meanwhile=kill_when_the_other_one_keeps_it,
        **env,
    )
    assert tuple(got) == undisturbed(TRAIN, 2, steps)
    assert (report["recovered"], report["verdict"]) == (1, "exact"), said
    channels = json.loads((tmp_path / "report.json").read_text())["channels"]
    assert max(channel["store"]["spilled_bytes"] for channel in channels) > 1e6, channels


def test_with_nccl_all_ranks_replay(tmp_path: Path) -> None:
    """As is the default on several GPUs: NCCL does not let a new rank in."""
    nccl = build_nccl(tmp_path)
    fault = "server-kill,rank=1,step=3,call=120"
    got, report, said = train(tmp_path, ("--inject", fault), "0,1", PYFT_CUT_EVERY="1", **nccl)
    assert tuple(got) == undisturbed(TRAIN, 2, STEPS)
    assert (report["recovered"], report["verdict"]) == (2, "exact"), said
    assert {one["fault"] for one in report["faults"]} == {"server-killed", "peer-failed"}
    assert all(one["action"].endswith("all [2] ranks replay") for one in report["faults"])


def test_with_nccl_communicators_keep_their_settings(tmp_path: Path) -> None:
    """Also those that are made anew when a rank has died."""
    outputs, settings = [], []
    for name, fault in {"undisturbed": (), "fault": ("--inject", FAULT_OF_ONE)}.items():
        folder = tmp_path / name
        folder.mkdir()
        record = folder / "settings"
        variables = build_nccl(folder) | {"NCCL_IMITATION_CONFIGS": str(record)}
        got, report, said = train(
            folder, fault, "0,1", NCCL_SETTINGS, (), PYFT_CUT_EVERY="1", **variables
        )
        assert report["recovered"] == (2 if fault else 0), said
        outputs.append(got)
        settings.append(sorted(record.read_text().splitlines()))
    assert outputs[0] == outputs[1]
    before, after = settings
    ctas = {line.split("maxCTAs=")[1].split()[0] for line in before if "maxCTAs" in line}
    assert ctas >= {"6", "3"}, before
    assert all("blocking=1" in line and "net=" in line for line in before), before
    assert any("maxCTAs=6 net=Socket" in line for line in before), before
    # The new servers make what there was once more, what was divided by itself.
    again = [line.replace("split ", "init ") for line in before]
    assert sorted({line.replace("split ", "init ") for line in after}) == sorted(set(again))
    assert len(after) == 2 * len(before), after


def test_with_nccl_a_kernel_that_hangs_is_found(tmp_path: Path) -> None:
    """At its rank: the other one waits in a collective of which only marks in its stream tell."""
    nccl = build_nccl(tmp_path)
    fault = {"SOFTGPU_FAULT": "hang:300,device=1", "PYFT_HANG_S": "5"}
    got, report, said = train(tmp_path, (), "0,1", PYFT_CUT_EVERY="1", **fault, **nccl)
    assert tuple(got) == undisturbed(TRAIN, 2, STEPS)
    found = {(one["rank"], one["fault"]) for one in report["faults"]}
    assert found == {(0, "peer-failed"), (1, "hang")}, said
    assert (report["recovered"], report["verdict"]) == (2, "exact"), said


@pytest.mark.parametrize("open_work", ["nothing", "receive"])
def test_with_nccl_a_rank_that_waits_is_not_stuck(tmp_path: Path, open_work: str) -> None:
    """However long the other one has something else to do, also with a collective open itself."""
    report, go = tmp_path / "report.json", tmp_path / "go"
    job = Job(
        tmp_path,
        command(LATE_RANK, 2, (str(go), open_work)),
        options=("--gpus", "0,1", "--report", str(report)),
        environment=environment(tmp_path / "driver", 2)
        | build_nccl(tmp_path)
        | {"PYFT_HANG_S": "4", "PYFT_COLLECTIVE_S": "2"},
    )
    try:
        wait_for(lambda: job.output().count("ready") == 2, 60, "both have come to the collective")
        time.sleep(7)
        go.touch()
        assert job.wait(60) == 0, job.errors()
    finally:
        job.kill_everything()
    assert json.loads(report.read_text())["recovery"]["faults"] == [], job.errors()
    assert sorted(line for line in job.output().splitlines() if "has" in line) == [
        f"rank {rank} has 4.0" for rank in (0, 1)
    ]


def test_with_nccl_a_collective_that_never_ends_is_ended(tmp_path: Path) -> None:
    """A message is lost: all wait for each other, and NCCL has no deadline."""
    lost = {"FLEXCCL_FAULT": "drop:40,rank=1", "PYFT_COLLECTIVE_S": "5"}
    got, report, said = train(
        tmp_path, (), "0,1", PYFT_CUT_EVERY="1", **lost, **build_nccl(tmp_path)
    )
    assert tuple(got) == undisturbed(TRAIN, 2, STEPS)
    assert {one["fault"] for one in report["faults"]} == {"collective", "peer-failed"}, said
    assert (report["recovered"], report["verdict"]) == (2, "exact"), said
    (one,) = (one for one in report["faults"] if one["fault"] == "collective")
    assert one["evidence"].startswith("ranks [0, 1] wait for each other, nothing moved for ["), one
    assert "ranks [0, 1] wait for each other in collectives" in said


def test_with_nccl_communicators_that_are_never_made_anew_are_ended(tmp_path: Path) -> None:
    """Each rank makes one; of the new servers, which make the third and fourth, one hangs in it."""
    made = tmp_path / "made"
    hangs = {"NCCL_IMITATION_HANGS": f"3:{made}", "PYFT_COLLECTIVE_S": "5"}
    got, report, said = train(
        tmp_path,
        ("--inject", FAULT_OF_ONE),
        "0,1",
        PYFT_CUT_EVERY="1",
        **hangs,
        **build_nccl(tmp_path),
    )
    assert tuple(got) == undisturbed(TRAIN, 2, STEPS)
    assert made.stat().st_size == 6, "and then both make one once more"
    assert (report["recovered"], report["verdict"]) == (2, "exact"), said
    (one,) = (one for one in report["faults"] if one["fault"] == "overdue")
    assert one["evidence"].startswith("ranks [0, 1] wait for each other, nothing moved for ["), one
    assert "wait for each other to make their communicators anew" in said


@pytest.mark.long
def test_with_nccl_ranks_that_never_meet_are_given_up(tmp_path: Path) -> None:
    """Each waits for what the other one never sends: replays come to the same place."""
    report = tmp_path / "report.json"
    job = Job(
        tmp_path,
        command(NEVER_MEET, 2, ()),
        options=("--gpus", "0,1", "--report", str(report)),
        environment=environment(tmp_path / "driver", 2)
        | build_nccl(tmp_path)
        | {"PYFT_COLLECTIVE_S": "3"},
    )
    try:
        assert job.wait(120) != 0
        job.assert_nothing_left()
    finally:
        job.kill_everything()
    assert "the same fault [collective] has come [3] times at the same place" in job.errors()
    faults = json.loads(report.read_text())["recovery"]["faults"]
    ended = [one["rank"] for one in faults if one["fault"] == "collective"]
    assert ended in ([0] * 3, [1] * 3), faults


def test_with_nccl_nobody_is_replaced_alone(tmp_path: Path) -> None:
    """Asked for all the same: the rank is given up, and says why."""
    nccl = build_nccl(tmp_path)
    job = Job(
        tmp_path,
        command(TRAIN, 2, STEPS),
        options=("--gpus", "0,1", "--inject", "server-kill,rank=1,step=3,call=120"),
        environment=environment(tmp_path / "driver", 2) | nccl | {"PYFT_REPLAY": "one"},
    )
    try:
        assert job.wait(120) != 0
        assert "NCCL cannot replace a rank" in job.errors()
        job.assert_nothing_left()
    finally:
        job.kill_everything()


@pytest.mark.long
def test_a_server_that_stood_by_takes_over(tmp_path: Path) -> None:
    """It has its context on the GPU in use, tests it, and is the one that goes on."""
    report = tmp_path / "report.json"
    job = Job(
        tmp_path,
        command(TRAIN, 1, ("--steps", "40")),
        options=("--gpus", "0", "--standby", "all", "--report", str(report)),
        environment=environment(tmp_path / "driver"),
    )
    try:
        job.wait_attached()
        wait_for(lambda: standing_by(job), 30, "a server stands by")
        (pid,) = standing_by(job)
        persona = int(Path(f"/proc/{pid}/personality").read_text(), 16)
        assert persona & 0x0040000, "it lies where other servers lie: ADDR_NO_RANDOMIZE"
        os.kill(job.victim("server"), signal.SIGKILL)
        wait_for(lambda: job.victim("server") == pid, 30, "it takes over")
        assert job.wait(120) == 0, job.errors()
        job.assert_nothing_left()
    finally:
        job.kill_everything()
    recovery = json.loads(report.read_text())["recovery"]
    assert (recovery["recovered"], recovery["verdict"]) == (1, "exact")
    assert tuple(lines(job)) == undisturbed(TRAIN, 1, ("--steps", "40"))


def standing_by(job: Job) -> list[int]:
    """Return the processes that were started to stand by for GPU 0 and serve nobody."""
    serving = job.victim("server")
    return [
        pid
        for pid in job.processes()
        if pid != serving and b"PYFT_STANDBY=0\0" in Path(f"/proc/{pid}/environ").read_bytes()
    ]


def test_memory_ends_where_it_ends_without_servers(tmp_path: Path) -> None:
    said = {}
    for name, gpus in {"direct": ("soft:1", "--direct"), "server": ("0",)}.items():
        folder = tmp_path / name
        folder.mkdir()
        job = Job(
            folder,
            [sys.executable, OUT_OF_MEMORY],
            options=("--gpus", *gpus),
            environment=environment(folder / "driver") | {"SOFTGPU_MEMORY": str(1 << 30)},
        )
        try:
            assert job.wait(120) == 0, job.errors()
            said[name] = job.output()
        finally:
            job.kill_everything()
    assert said["server"] == said["direct"]
    assert "fit=" in said["server"]


def test_a_missing_driver_is_named(tmp_path: Path) -> None:
    with contextlib.suppress(DriverError):
        pytest.skip(f"[no driver]: there is one: {driver_gpus()}")
    job = Job(tmp_path, ["true"], options=("--gpus", "0"), environment={"LD_LIBRARY_PATH": ""})
    assert job.wait(20) == 2
    assert "[0]: no CUDA driver: use soft:N" in job.errors()
