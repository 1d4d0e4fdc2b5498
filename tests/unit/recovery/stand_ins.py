"""A server and a client that only speak the protocols, for tests of agents."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from job import Job, wait_for

from pyft import _native

Start = Callable[..., Job]
# Beats, says what it was given, and does what the variable ACTS says of its epoch.
SERVER = f"""#!{sys.executable} -I
import json, os, select, socket, time
from pyft.wire import layout, messages, packet
from pyft.wire.layout import ATTACH_REPLY, CONTROL_PAGE
agent = socket.socket(fileno=int(os.environ["PYFT_SERVER_FD"]))
waited = not select.select([agent], [], [], 1.0)[0]
note = os.environ["GIVEN"] + f".waits-{{os.getpid()}}"
if waited:
    open(note, "w").close()
reply, fds, _, _ = socket.recv_fds(agent, 4096, 5)
if waited:
    os.remove(note)
if not reply:
    os._exit(0)
control, granted = fds[1], ATTACH_REPLY.unpack(reply)
epoch = granted.epoch
put = lambda name, *values: CONTROL_PAGE[name].put(control, *values)
text = granted.text.partition(b"\\0")[0].decode()
for name, _, value in (line.partition("=") for line in text.splitlines()):
    os.environ[name] = value
names = ("CUDA_VISIBLE_DEVICES", "PYFT_KILL_AT", "SOFTGPU_FAULT", "PYFT_FAULT", "PYFT_DIVERGENCE")
given = {{name: os.environ[name] for name in names if name in os.environ}}
started = time.monotonic()
given |= {{"waited": waited}}
given |= {{"epoch": epoch, "fds": len(fds), "page": CONTROL_PAGE["epoch"].get(control)}}
given |= {{"mode": CONTROL_PAGE["replay_mode"].get(control)}}
for name in ("PYFT_FAULT", "SOFTGPU_FAULT"):  # they happen at once, and do nothing
    asked, notes = os.environ.get(name, "agent."), os.environ.get(name + "_NOTES")
    if notes and not asked.startswith("agent."):
        with open(notes, "a") as file:
            file.write(f"happened {{name}}={{asked}}\\n")
if "SHOW_TOKEN" in os.environ:
    given["token"] = os.environ.get("FLEXCCL_JOB_TOKEN")
if len(fds) > 4:  # a store
    given["seed"] = layout.STORE_HEADER["seed"].get(fds[4])
with open(os.environ["GIVEN"], "a") as file:
    file.write(json.dumps(given) + "\\n")
act = os.environ.get("ACTS", "").split(",")[epoch - 1 : epoch]
def last_words(kind, code, text):
    try:
        agent.send(packet.pack(messages.Fault(kind, code, 0, text)))
    except OSError:
        os._exit(0)
def fail(code):
    last_words(layout.FaultKind.DEVICE, code, b"the last words")
    os._exit(layout.FAULT_EXIT)
if act == ["die"]:
    os._exit(3)
if act == ["differ"]:
    last_words(layout.FaultKind.DIVERGED, 0, b"one entry")
    os._exit(layout.DIVERGED_EXIT)
if act and act[0].isdigit():
    fail(int(act[0]))
while act == ["restores"]:  # and never comes to an end
    put("heartbeat_ns", time.monotonic_ns())
    if select.select([agent], [], [], 0.05)[0]:
        os._exit(0)
put("replayed_entries", 12)
put("compared", 5)
put("differed", 0)
now = time.monotonic_ns()
put("phase_ns", now, now, now, now, now, now, 0, 0)
put("consumed", 64)
put("phase", layout.Phase.LIVE)
put("status", layout.ChannelStatus.SERVING)
try:
    agent.send(packet.pack(messages.Live()))
except OSError:
    os._exit(0)
if act == ["stuck"]:  # but at first it waits for other ranks
    put("device_progress", 5)
    put("fences_open", 1)
    put("collectives_waiting", 1)
while True:
    if act == ["late"] and time.monotonic() > started + 0.5:
        put("differed", 2)  # a stream has come to something that differs
        put("differed_seq", 33)
    if act == ["stuck"] and time.monotonic() > started + 2.5:
        put("collectives_waiting", 0)
    if act != ["mute"]:
        put("heartbeat_ns", time.monotonic_ns())
    if select.select([agent], [], [], 0.05)[0]:
        words = agent.recv(4096)[40:].decode()
        if not words:
            os._exit(0)
        note = CONTROL_PAGE["fault_notes"].offset + int(words.rpartition("note=")[2])
        os.pwrite(control, b"\\1", note)
        fail(999 if words.startswith("lost") else 700)
"""
# Ends when it has seen a server of the epoch WANTED or later, or that there will be none.
CLIENT = """
import os, socket, time
from pyft.wire import layout
from pyft.wire.layout import ATTACH_REQUEST, CONTROL_PAGE, ChannelStatus
agent = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
agent.connect("\\0" + os.environ["PYFT_AGENT"])
env = b"".join(k.encode() + b"=" + v.encode() + b"\\0" for k, v in os.environ.items())
head = ATTACH_REQUEST.pack(
    magic=layout.ATTACH_MAGIC, version=layout.ATTACH_VERSION, pid=os.getpid(), environment_bytes=len(env)
)
agent.send(head + env)
message, fds, _, _ = socket.recv_fds(agent, 4096, 5)
assert len(fds) == 4, "the store is the server's"
seen, deadline = [], time.monotonic() + 80
while time.monotonic() < deadline:
    page = CONTROL_PAGE.read(os.pread(fds[1], CONTROL_PAGE.size, 0), "status", "epoch", "status_text")
    status, epoch = page["status"], page["epoch"]
    text = page["status_text"].partition(b"\\0")[0].decode()
    if seen[-1:] != [(status, text)]:
        seen.append((status, text))
        print("status", status, text, flush=True)
    if status == ChannelStatus.SERVER_DEAD:
        raise SystemExit(46)
    if status == ChannelStatus.SERVING and epoch >= int(os.environ["WANTED"]):
        break
    time.sleep(0.002)
else:
    raise SystemExit(47)
time.sleep(float(os.environ.get("AFTER_S", "0.1")))
until = time.monotonic() + 120
while not os.path.exists(os.environ.get("ENDS_WITH", "/")) and time.monotonic() < until:
    time.sleep(0.05)
"""


@pytest.fixture
def native(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of native files in which only libpyft_native.so is real."""
    folder = tmp_path / "native"
    folder.mkdir()
    compiler = shutil.which("cc") or pytest.skip("[compiler]: no C compiler")
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

    def run(
        wanted: int,
        *options: str,
        gpus: str = "soft:1",
        command: tuple[str, ...] = (sys.executable, "-c", CLIENT),
        **variables: str,
    ) -> Job:
        environment = {"WANTED": str(wanted), "GIVEN": str(tmp_path / "given"), **variables}
        line = ("--gpus", gpus, "--protect", "snapshot", "--report", str(tmp_path / "r"), *options)
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


def scrape(port: int) -> str:
    """Return what Prometheus would get, which asks again while a new agent takes over."""
    wait_for(lambda: not _refuses(port), 20, "somebody listens")
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        return connection.makefile().read()


def _refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def wait_standby(job: Job) -> None:
    """Wait until a server stands by: it has started, and nobody has given it a channel."""
    notes = str(job.log_dir.parent / "given.waits-")

    def waits() -> bool:
        return any(os.path.exists(f"{notes}{pid}") for pid in job.processes())

    wait_for(waits, 20, "a server stands by")


def wait_serving(job: Job, servers: int) -> None:
    """Wait until the n-th server serves. No fault may await that server: it would be missed."""
    job.wait_attached()
    log = job.log_dir.parent
    wait_for(lambda: len(given(log)) == servers, 20, f"{servers} servers")
    wait_for(lambda: job.output().rstrip().split("\n")[-1].startswith("status 1"), 20, "it serves")
