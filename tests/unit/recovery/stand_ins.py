"""A server and a client that only speak the protocols, for tests of agents."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from job import PYFT, Job, wait_for

Start = Callable[..., Job]
# Beats, says what it was given, and does what the variable ACTS says of its epoch.
SERVER = f"""#!{sys.executable} -I
import json, os, select, socket, struct, time
agent = socket.socket(fileno=int(os.environ["PYFT_SERVER_FD"]))
started = time.monotonic()
reply, fds, _, _ = socket.recv_fds(agent, 4096, 5)
if not reply:
    os._exit(0)
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
if "SHOW_TOKEN" in os.environ:
    given["token"] = os.environ.get("FLEXCCL_JOB_TOKEN")
if len(fds) > 4:  # a store
    given["seed"] = struct.unpack("<Q", os.pread(fds[4], 8, 400))[0]
with open(os.environ["GIVEN"], "a") as file:
    file.write(json.dumps(given) + "\\n")
act = os.environ.get("ACTS", "").split(",")[epoch - 1 : epoch]
def last_words(kind, code, text):
    head = struct.pack("<IIQQQII", 0x4D544650, 30, kind, code, 0, len(text), 0)
    try:
        agent.send(head + text)
    except OSError:
        os._exit(0)
def fail(code):
    last_words(1, code, b"the last words")
    os._exit(75)
if act == ["die"]:
    os._exit(3)
if act == ["differ"]:
    last_words(3, 0, b"one entry")
    os._exit(77)
if act and act[0].isdigit():
    fail(int(act[0]))
while act == ["restores"]:  # and never comes to an end
    put(336, "<Q", time.monotonic_ns())
    if select.select([agent], [], [], 0.05)[0]:
        os._exit(0)
put(856, "<QQQ", 12, 5, 0)
now = time.monotonic_ns()
put(776, "<8Q", now, now, now, now, now, now, 0, 0)
put(320, "<Q", 64)
put(768, "<I", 0)
put(32, "<I", 1)
try:
    agent.send(struct.pack("<IIQQQII", 0x4D544650, 1, 0, 0, 0, 0, 0))
except OSError:
    os._exit(0)
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
        put(1152 + int(words.rpartition("note=")[2]), "B", 1)
        fail(999 if words.startswith("lost") else 700)
"""
# Ends when it has seen a server of the epoch WANTED or later, or that there will be none.
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
    if status == 1 and epoch >= int(os.environ["WANTED"]):
        break
    time.sleep(0.002)
else:
    raise SystemExit(47)
time.sleep(float(os.environ.get("AFTER_S", "0.1")))
"""


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


def free_port() -> int:
    """Return a TCP port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def scrape(port: int) -> str:
    """Return what Prometheus would get, which asks again while a new agent takes over."""
    wait_for(lambda: not _refuses(port), 20, "somebody listens")
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        return connection.makefile().read()


def _refuses(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def wait_serving(job: Job, servers: int) -> None:
    """Wait until the n-th server serves."""
    job.wait_attached()
    log = job.log_dir.parent
    wait_for(lambda: len(given(log)) == servers, 20, f"{servers} servers")
    wait_for(lambda: job.output().rstrip().split("\n")[-1].startswith("status 1"), 20, "it serves")
