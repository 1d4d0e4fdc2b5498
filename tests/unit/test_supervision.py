"""Launcher, supervisor and agent, with a server and a client that only speak the attach protocol."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from job import PYFT, Job, wait_for

from pyft import _native
from pyft.agent.process import descriptors
from pyft.wire import layout
from pyft.wire.layout import ATTACH_REPLY, ATTACH_REQUEST

Start = Callable[..., Job]
SERVER = f"""#!{sys.executable} -I
import os, socket
from pyft.wire.layout import ATTACH_REPLY
assert "LD_PRELOAD" not in os.environ and os.environ["PYFT_DEVICE"] == "0"
agent = socket.socket(fileno=int(os.environ["PYFT_SERVER_FD"]))
message, fds, _, _ = socket.recv_fds(agent, 4096, 5)
assert len(message) == ATTACH_REPLY.size and len(fds) in (4, 5)
try:
    os.pwrite(fds[0], b"x", 0)
    raise SystemExit("the server can write to the log")
except OSError:
    pass
agent.recv(1)
"""
CLIENT = """
import os, socket, time
from pyft.wire import layout
from pyft.wire.layout import ATTACH_REPLY, ATTACH_REQUEST, CONTROL_PAGE
agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
agent.connect("\\0" + os.environ["PYFT_AGENT"])
env = b"".join(k.encode() + b"=" + v.encode() + b"\\0" for k, v in os.environ.items())
head = (layout.ATTACH_MAGIC, layout.ATTACH_VERSION, os.getpid(), DEVICE, len(env))
agent.send(ATTACH_REQUEST.pack(*head) + env)
message, fds, _, _ = socket.recv_fds(agent, 4096, 4)
print("error", ATTACH_REPLY["error"].read(message), "fds", len(fds), flush=True)
while True:
    time.sleep(0.02)
    if CONTROL_PAGE["status"].get(fds[1]) == layout.ChannelStatus.SERVER_DEAD:
        print(CONTROL_PAGE["status_text"].get(fds[1]).partition(b"\\0")[0].decode())
        raise SystemExit(46)
"""
# A tree that tries to get away: a new session, and a double fork.
ESCAPING = "setsid sleep 1000 & (setsid sleep 1000 &) ; exec "


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of native files in which only libpyft_native.so is real."""
    folder = tmp_path / "native"
    folder.mkdir()
    compiler = shutil.which("cc") or pytest.skip("[compiler]: no C compiler")
    libraries = ("libpyft_shim", "libpyft_nvml", "libsoftgpu", "libsoftgpu_nvml")
    for name in (*libraries, "libpyft_collectives", "libflexccl"):
        library = str(folder / f"{name}.so")
        subprocess.run([compiler, "-shared", "-x", "c", "/dev/null", "-o", library], check=True)
    (folder / "pyft-server").write_text(SERVER)
    (folder / "pyft-server").chmod(0o755)
    real = _native.native_dir() / "libpyft_native.so"
    if real.exists():
        (folder / "libpyft_native.so").symlink_to(real)
    monkeypatch.setenv("PYFT_NATIVE_DIR", str(folder))
    return folder


@pytest.fixture
def start(tmp_path: Path, native: Path) -> Iterator[Start]:
    jobs = []

    def run(*command: str, **options: object) -> Job:
        folder = tmp_path / f"job{len(jobs)}"
        folder.mkdir()
        jobs.append(Job(folder, command, **options))
        return jobs[-1]

    yield run
    for job in jobs:
        job.kill_everything()


def client(device: int = 0) -> tuple[str, ...]:
    return (sys.executable, "-c", CLIENT.replace("DEVICE", str(device)))


@pytest.mark.parametrize("how", [[], ["--direct"]])
@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -15 $$", 143)]
)
def test_exit_code(start: Start, script: str, code: int, how: list[str]) -> None:
    job = start("sh", "-c", script, options=["--gpus", "soft:1", *how])
    assert job.wait() == code
    job.assert_nothing_left()


def test_arguments_are_untouched(start: Start) -> None:
    arguments = ["", "a b", "*", "$HOME", "--", "--gpus", "-x", "é", "--help"]
    job = start(sys.executable, "-c", "import sys; print(sys.argv[1:])", *arguments)
    assert job.wait() == 0
    assert job.output() == f"{arguments}\n"


def test_stdin_and_descriptors_are_inherited(native: Path) -> None:
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    program = f"import os; os.write({writer}, b'five'); os.write(1, os.read(0, 9))"
    command = [PYFT, "run", "--gpus", "soft:1", "--", sys.executable, "-c", program]
    result = subprocess.run(command, input=b"hello", capture_output=True, close_fds=False)
    os.close(writer)
    assert result.stdout == b"hello"
    assert os.read(reader, 100) == b"five"
    os.close(reader)


@pytest.mark.parametrize("fault", ["", "agent.says:2", "agent.says:3"])
def test_the_command_inherits_nothing_of_ours(start: Start, fault: str) -> None:
    """Whichever agent has it started: the first one, or the next, for whom notes are kept."""
    program = """
import contextlib, os
for number in os.listdir("/proc/self/fd"):
    with contextlib.suppress(OSError):  # of the folder that is listed
        print(number, os.readlink(f"/proc/self/fd/{number}"))
"""
    job = start(sys.executable, "-I", "-c", program, environment={"PYFT_FAULT": fault})
    assert job.wait() == 0
    assert ("a new agent" in job.errors()) == bool(fault)
    assert [line.split()[0] for line in job.output().splitlines()] == ["0", "1", "2"]


@pytest.mark.parametrize(("program", "code"), [("no-such-program", 127), ("/etc/passwd", 126)])
def test_command_that_cannot_start(start: Start, program: str, code: int) -> None:
    job = start(program)
    assert job.wait() == code
    assert f"cannot start [{program}]" in job.errors()
    job.assert_nothing_left()


@pytest.mark.parametrize("gpus", [[], ["--gpus", "all"], ["--gpus", "soft:0"]])
def test_other_gpus_are_refused(start: Start, gpus: list[str]) -> None:
    job = start("true", options=gpus)
    assert job.wait() == 2
    assert "soft:" in job.errors()


@pytest.mark.parametrize("option", ["--log-dir", "--report"])
def test_unusable_folder_is_refused_before_the_run(
    start: Start, option: str, tmp_path: Path
) -> None:
    job = start(
        "touch", str(tmp_path / "ran"), options=["--gpus", "soft:1", option, "/proc/none/x"]
    )
    assert job.wait() == 2
    assert "[/proc/none/x] cannot be" in job.errors()
    assert not (tmp_path / "ran").exists()


def test_a_port_that_is_taken_is_refused(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        job = start("true", options=["--gpus", "soft:1", "--metrics-port", str(port)])
        assert job.wait() == 2
    assert f"pyft: --metrics-port [{port}] cannot be used: Address already in use" in job.errors()
    job.assert_nothing_left()


def test_environment(start: Start) -> None:
    program = "import os; print(os.environ['LD_PRELOAD'], os.environ['PYTHONPATH'])"
    environment = {"LD_PRELOAD": "libc.so.6", "PYTHONPATH": "/mine"}
    job = start(sys.executable, "-c", program, environment=environment)
    assert job.wait() == 0
    preload, path = job.output().split()
    assert preload.endswith("libpyft_nvml.so:libc.so.6")
    assert path.endswith("site:/mine")


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_are_forwarded_once(start: Start, signal_number: int) -> None:
    script = f"trap 'echo got; exit 3' {signal_number}; echo ready; while :; do sleep 0.05; done"
    job = start("sh", "-c", script)
    wait_for(lambda: "ready" in job.output(), 30, "the command starts")
    job.send(signal_number)
    assert job.wait(10) == 3
    assert job.output() == "ready\ngot\n"
    job.assert_nothing_left()


@pytest.mark.parametrize("victim", ["launcher", "supervisor", "client"])
def test_kill_leaves_nothing(start: Start, victim: str, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    options = ["--gpus", "soft:1", "--report", str(report)]
    job = start("sh", "-c", ESCAPING + '"$@"', "sh", *client(), options=options)
    job.wait_attached()
    os.kill(job.victim(victim), signal.SIGKILL)
    job.wait(20)
    job.assert_nothing_left(20)
    sentence = {
        "launcher": "the launcher was killed: ended the command and its servers",
        "supervisor": "] was killed by signal [9 SIGKILL]: ended the command and its servers",
        "client": "rank 0] was killed by signal [9 SIGKILL]; its server [pid",
    }[victim]
    assert sentence in job.errors()
    assert list(job.log_dir.glob("rank0-pid*-dev0.ring"))
    if victim != "launcher":
        left = json.loads(report.read_text())
        assert left["exit_code"] == job.wait()
        assert [one["rank"] for one in left["channels"]] == [0]


@pytest.mark.parametrize("how", [["--protect", "none"], ["--direct"]])
def test_a_command_outlives_its_agents(start: Start, how: list[str], tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = f"trap 'echo got' USR1; echo ready; until [ -e {go} ]; do sleep 0.05; done; exit 7"
    job = start("sh", "-c", ESCAPING.replace("exec", script), options=["--gpus", "soft:1", *how])
    wait_for(lambda: "ready" in job.output(), 30, "the command starts")
    with job.without_agent():
        job.send(signal.SIGUSR1)
    wait_for(lambda: "got" in job.output(), 30, "what no agent has taken reaches the next one")
    with job.without_agent():
        go.touch()
    assert job.wait(10) == 7
    job.assert_nothing_left()
    assert "ended what it left running" in job.errors()


def test_a_server_that_dies_without_an_agent_and_protection_is_an_error(start: Start) -> None:
    job = start(*client(), options=["--gpus", "soft:1", "--protect", "none"])
    job.wait_attached()
    with job.without_agent():
        os.kill(job.victim("server"), signal.SIGKILL)
    assert job.wait(10) == 46
    assert "was killed by signal [9 SIGKILL]" in job.output()


def test_killed_server_is_reported_to_client_and_user(start: Start) -> None:
    job = start(*client(), options=["--gpus", "soft:1", "--protect", "none"])
    job.wait_attached()
    server = job.victim("server")
    os.kill(server, signal.SIGKILL)
    assert job.wait(20) == 46
    sentence = f"the server [pid {server}] of device [0] was killed by signal [9 SIGKILL]"
    assert sentence in job.errors()
    assert sentence in job.output()
    job.assert_nothing_left()


def test_device_that_does_not_exist(start: Start) -> None:
    job = start(*client(device=1))
    job.wait()
    assert "error 19 fds 0" in job.output()
    assert "device [1] does not exist" in job.errors()


def test_memory_is_refused_with_the_cause(start: Start) -> None:
    job = start(*client(), environment={"PYFT_RING_MB": "lots"})
    job.wait()
    assert "PYFT_RING_MB is [lots], which is not a number" in job.errors()


def test_more_page_locked_memory_than_addresses_is_refused(start: Start) -> None:
    job = start(*client(), environment={"PYFT_PINNED_GB": "65"})
    job.wait()
    assert "PYFT_PINNED_GB is [65], the most is [64]" in job.errors()


def test_pyft_takes_more_descriptors_than_the_command(start: Start) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = 150
    limited = ("sh", "-c", f'ulimit -Sn {few}; exec "$@"', "sh")
    job = start("sh", "-c", "ulimit -Sn; exec sleep 60", wrapper=limited)
    wait_for(job.output, 20, job.errors)
    assert job.output() == f"{few}\n"
    for role in ("launcher", "supervisor", "agent"):
        assert resource.prlimit(job.victim(role), resource.RLIMIT_NOFILE) == (hard, hard), role
    job.send(signal.SIGTERM)
    job.wait(20)


def test_a_limit_that_was_lowered_meanwhile_is_the_command_s_as_well() -> None:
    """A process without privileges may not raise it again: the command would not be started."""
    code = """
import resource
from pyft.agent.process import descriptors
before = descriptors.raise_limit()
resource.setrlimit(resource.RLIMIT_NOFILE, (90, 100))
descriptors.lower_limit(before)
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""
    line = [sys.executable, "-c", code]
    done = subprocess.run(line, capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "100 100\n"


def test_more_clients_than_descriptors_are_refused(start: Start, tmp_path: Path) -> None:
    """As where the hard limit is low: those that are there stay, and when one ends there is room."""
    few = 100
    room = (few - descriptors.OWN - few // 4) // descriptors.PER_CLIENT
    code = "import signal; signal.pause()"
    job = start(sys.executable, "-c", code)
    wait_for((job.log_dir / "meta.json").exists, 20, "a job")
    agent, supervisor = job.victim("agent"), job.victim("supervisor")
    for pid in (agent, supervisor):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, few))
    name = job.meta()["orders"].removesuffix("-orders")
    present = [_attach(name) for _ in range(room)]
    assert all(present)
    for _ in range(3):
        assert _attach(name) is None
    assert (job.victim("agent"), job.victim("supervisor")) == (agent, supervisor), job.errors()
    refusal = f"the job has [{room}] clients, and for one more the limit [{few}] of descriptors is"
    assert job.errors().count(refusal) == 3
    # The agent writes it down a little later: what is there before must be all of them.
    wait_for(lambda: len(job.meta()["live"]) == room, 20, job.errors)
    first = present.pop()
    assert first is not None
    first.close()
    # Its process lives on: after a second it counts as dead all the same.
    wait_for(lambda: len(job.meta()["live"]) == room - 1, 20, job.errors)
    present.append(_attach(name))
    assert all(present)
    job.send(signal.SIGTERM)
    job.wait(30)


def _attach(name: str) -> socket.socket | None:
    """Attach a client, which is this process; None if it is refused."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.settimeout(20)
    client.connect("\0" + name)
    client.send(ATTACH_REQUEST.pack(layout.ATTACH_MAGIC, layout.ATTACH_VERSION, os.getpid(), 0, 0))
    reply, fds, _, _ = socket.recv_fds(client, 4096, 4)
    for fd in fds:
        os.close(fd)
    if not ATTACH_REPLY["error"].read(reply):
        return client
    assert ATTACH_REPLY["error"].read(reply) == errno.EMFILE
    client.close()
    return None


def test_old_jobs_are_removed(tmp_path: Path, native: Path) -> None:
    environment = os.environ | {"PYFT_KEEP_JOBS": "2"}
    command = [PYFT, "run", "--gpus", "soft:1", "--direct", "--", "true"]
    for _ in range(4):
        subprocess.run(command, env=environment, check=True)
    assert len(list((tmp_path / "state" / "pyft").iterdir())) == 2
