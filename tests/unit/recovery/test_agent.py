"""The agent replaces servers: with a server and a client that only speak the protocols."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from job import PYFT, Job, wait_for

from pyft import _native

Start = Callable[..., Job]
# Beats, says what it was given, and does what the variable ACTS says of its epoch.
SERVER = f"""#!{sys.executable} -I
import json, os, select, socket, struct, time
agent = socket.socket(fileno=int(os.environ["PYFT_SERVER_FD"]))
started = time.monotonic()
reply, fds, _, _ = socket.recv_fds(agent, 4096, 5)
control, epoch = fds[1], struct.unpack_from("<I", reply, 24)[0]
put = lambda at, form, *values: os.pwrite(control, struct.pack(form, *values), at)
text = reply[72:].partition(b"\\0")[0].decode()
for name, _, value in (line.partition("=") for line in text.splitlines()):
    os.environ[name] = value
names = ("CUDA_VISIBLE_DEVICES", "PYFT_KILL_AT", "SOFTGPU_FAULT", "PYFT_FAULT", "PYFT_DIVERGENCE")
given = {{name: os.environ[name] for name in names if name in os.environ}}
given |= {{"waited": started < time.monotonic() - 0.3}}
given |= {{"epoch": epoch, "fds": len(fds), "page": struct.unpack("<I", os.pread(control, 4, 24))[0]}}
given |= {{"mode": struct.unpack("<I", os.pread(control, 4, 772))[0]}}
with open(os.environ["GIVEN"], "a") as file:
    file.write(json.dumps(given) + "\\n")
act = os.environ.get("ACTS", "").split(",")[epoch - 1 : epoch]
def fail(code):
    put(540, "<Ii", 1, code)
    put(560, "16s", b"the last words")
    os._exit(75)
if act == ["die"]:
    os._exit(3)
if act == ["differ"]:
    put(540, "<Ii", 3, 0)
    put(560, "16s", b"one entry")
    os._exit(77)
if act and act[0].isdigit():
    fail(int(act[0]))
put(856, "<QQQ", 12, 5, 0)
now = time.monotonic_ns()
put(776, "<8Q", now, now, now, now, now, now, 0, 0)
put(320, "<Q", 64)
put(32, "<I", 1)
agent.send(struct.pack("<IIQQQII", 0x4D544650, 1, 0, 0, 0, 0, 0))
if act == ["stuck"]:  # but at first it waits for other ranks
    put(1024, "<QII", 5, 1, 1)
while True:
    if act == ["late"] and time.monotonic() > started + 0.5:
        put(872, "<QQ", 2, 33)  # a stream has come to something that differs
    if act == ["stuck"] and time.monotonic() > started + 2.5:
        put(1036, "<I", 0)
    if act != ["mute"]:
        put(336, "<Q", time.monotonic_ns())
    if select.select([agent], [], [], 0.05)[0]:
        words = agent.recv(4096)[40:].decode()
        if not words:
            os._exit(0)
        fail(999 if words.startswith("lost") else 700)
"""
# Ends when it has seen a server of the epoch WANTED, or that there will be none.
CLIENT = """
import os, socket, struct, time
agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
agent.connect("\\0" + os.environ["PYFT_AGENT"])
env = b"".join(k.encode() + b"=" + v.encode() + b"\\0" for k, v in os.environ.items())
agent.send(struct.pack("<6I", 0x41544650, 2, os.getpid(), 0, len(env), 0) + env)
message, fds, _, _ = socket.recv_fds(agent, 4096, 5)
assert len(fds) == 4, "the store is the server's"
seen, deadline = [], time.monotonic() + 20
while time.monotonic() < deadline:
    page = os.pread(fds[1], 4096, 0)
    status, epoch = struct.unpack_from("<I", page, 32)[0], struct.unpack_from("<I", page, 24)[0]
    text = page[40:296].partition(b"\\0")[0].decode()
    if seen[-1:] != [(status, text)]:
        seen.append((status, text))
        print("status", status, text, flush=True)
    if status == 2:
        raise SystemExit(46)
    if status == 1 and epoch == int(os.environ["WANTED"]):
        break
    time.sleep(0.002)
else:
    raise SystemExit(47)
time.sleep(float(os.environ.get("AFTER_S", "0.1")))
"""


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of native files in which only libpyft_native.so is real."""
    folder = tmp_path / "native"
    folder.mkdir()
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    empty = folder / "libpyft_shim.so"
    subprocess.run([compiler, "-shared", "-x", "c", "/dev/null", "-o", str(empty)], check=True)
    for name in ("pyft_nvml", "softgpu", "softgpu_nvml", "pyft_collectives", "flexccl"):
        shutil.copy(empty, folder / f"lib{name}.so")
    (folder / "pyft-server").write_text(SERVER)
    (folder / "pyft-server").chmod(0o755)
    (folder / "libpyft_native.so").symlink_to(_native.native_dir() / "libpyft_native.so")
    monkeypatch.setenv("PYFT_NATIVE_DIR", str(folder))
    return folder


@pytest.fixture
def start(tmp_path: Path, native: Path) -> Iterator[Start]:
    jobs = []

    def run(wanted: int, *options: str, gpus: str = "soft:1", **variables: str) -> Job:
        environment = {"WANTED": str(wanted), "GIVEN": str(tmp_path / "given"), **variables}
        line = ("--gpus", gpus, "--protect", "capture", "--report", str(tmp_path / "r"), *options)
        command = (sys.executable, "-c", CLIENT)
        jobs.append(Job(tmp_path, command, options=line, environment=environment))
        return jobs[-1]

    yield run
    for job in jobs:
        job.kill_everything()


def given(folder: Path) -> list[dict]:
    """Return what each server was given."""
    file = folder / "given"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def faults(folder: Path) -> list[dict]:
    """Return the faults in the report."""
    return json.loads((folder / "r").read_text())["recovery"]["faults"]


def order(job: Job, *words: str) -> subprocess.CompletedProcess[str]:
    """Give an order to a job."""
    line = [PYFT, *words, "--job", str(job.log_dir)]
    return subprocess.run(line, capture_output=True, text=True, timeout=20)


def wait_serving(job: Job, servers: int) -> None:
    """Wait until the n-th server serves."""
    job.wait_attached()
    log = job.log_dir.parent
    wait_for(lambda: len(given(log)) == servers, 20, f"{servers} servers")
    wait_for(lambda: job.output().rstrip().split("\n")[-1].startswith("status 1"), 20, "it serves")


def test_a_killed_server_is_replaced(start: Start, tmp_path: Path) -> None:
    job = start(2, PYFT_FAULT="nothing", SOFTGPU_FAULT="slow")
    wait_serving(job, 1)
    os.kill(job.victim("server"), signal.SIGKILL)
    assert job.wait(30) == 0
    job.assert_nothing_left()
    assert [line[:8] for line in job.output().splitlines()][-2:] == ["status 5", "status 1"]
    first, second = given(tmp_path)
    assert (first["fds"], first["epoch"], first["PYFT_FAULT"]) == (5, 1, "nothing")
    plain = {"epoch": 2, "fds": 5, "page": 2, "mode": 0, "waited": False}
    plain |= {"PYFT_DIVERGENCE": "strict"}
    assert second == plain, "no fault comes twice"
    (fault,) = faults(tmp_path)
    assert fault["fault"] == "server-killed"
    assert (fault["outcome"], fault["verdict"]) == ("recovered", "exact")
    assert (fault["epoch_to"], fault["gpu_to"], fault["replayed_entries"]) == (2, 0, 12)
    assert all(ms >= 0 for ms in fault["phases_ms"].values())
    assert "rank [0] goes on after" in job.errors()
    assert "1 of 1 recovered, goodput 0." in job.errors()


def test_a_lost_gpu_is_left_and_the_next_one_waits_for_a_spare(
    start: Start, tmp_path: Path
) -> None:
    job = start(3, "--inject", "gpu-lost,rank=0", "--spares", "1", ACTS=",999")
    wait_for(lambda: "waiting for" in job.output(), 20, "no spare is left")
    assert order(job, "replace", "--rank", "0", "--gpu", "1").stderr.count("is lost: API code")
    assert order(job, "spare", "--gpu", "8").returncode == 1
    assert order(job, "spare", "--gpu", "5").returncode == 0
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
    port = socket.create_server(("127.0.0.1", 0))
    number = port.getsockname()[1]
    port.close()
    job = start(4, "--spares", "1", "--metrics-port", str(number))
    wait_serving(job, 1)
    assert (
        "no job is running"
        in subprocess.run([PYFT, "drain", "--gpu", "0"], capture_output=True, text=True).stderr
    )
    assert "rank [1] has no server" in order(job, "replace", "--rank", "1").stderr
    assert order(job, "inject", "--rank", "0", "--fault", "boom").returncode == 2
    assert order(job, "replace", "--rank", "0").returncode == 0
    wait_serving(job, 2)
    assert order(job, "drain", "--gpu", "0").returncode == 0
    wait_serving(job, 3)
    assert "no spare" in order(job, "drain", "--gpu", "1").stderr
    with socket.create_connection(("127.0.0.1", number), timeout=5) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        answer = connection.makefile().read()
    assert 'pyft_faults_total{class="ordered",rank="0"} 2' in answer
    assert 'pyft_server_alive{rank="0",device="0"} 1' in answer
    assert order(job, "inject", "--rank", "0", "--fault", "server-kill").returncode == 0
    assert job.wait(30) == 0
    assert [fault["fault"] for fault in faults(tmp_path)] == ["ordered", "ordered", "server-killed"]


def test_a_server_that_stood_by_takes_over(start: Start, tmp_path: Path) -> None:
    job = start(3, "--spares", "1", ACTS=",die")
    wait_serving(job, 1)
    wait_for(lambda: len(job.processes()) == 5, 20, "a server stands by")
    time.sleep(0.5)
    assert order(job, "inject", "--rank", "0", "--fault", "gpu-lost").returncode == 0
    assert job.wait(30) == 0
    assert [server["waited"] for server in given(tmp_path)] == [False, True, False]
    assert given(tmp_path)[1]["CUDA_VISIBLE_DEVICES"] == "1,0"
    job.assert_nothing_left()


def test_places_of_faults_reach_one_server(start: Start, tmp_path: Path) -> None:
    faults = ("server-kill,rank=0,step=2,call=7", "sticky,rank=0,step=1", "hang,rank=1,step=1")
    options = [word for fault in faults for word in ("--inject", fault)]
    job = start(2, *options, ACTS="die")
    assert job.wait(30) == 0
    first, second = given(tmp_path)
    assert first["PYFT_KILL_AT"] == "cut:2,entry:7"
    assert "PYFT_KILL_AT" not in second


def test_impossible_options_are_refused(native: Path) -> None:
    for words, text in (
        (["--protect", "jit"], "--protect jit is not there"),
        (["--inject", "boom,rank=0"], "fault kind [boom] does not exist"),
        (["--direct", "--inject", "ecc,rank=0"], "--inject needs servers"),
    ):
        line = [PYFT, "run", "--gpus", "soft:1", *words, "--", "true"]
        result = subprocess.run(line, capture_output=True, text=True)
        assert result.returncode == 2
        assert text in result.stderr
