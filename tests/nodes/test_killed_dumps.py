"""What CRIU has done to connections stays when a process is killed that it dumps; all go on or back then."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread

from job import wait_for

sys.path.insert(0, str(Path(__file__).parent))
import movable  # noqa: E402

from pyft.agent.ended_dump import end_dump, let_go  # noqa: E402
from pyft.agent.process import process_tree  # noqa: E402
from pyft.agent.process.stopped import stop_all  # noqa: E402
from pyft.images import criu, packet_filter, tree  # noqa: E402

# Two processes, so large that a dump takes its time, and a connection of one of them with itself.
PROGRAM = """
import os, socket, time
large = bytearray(b"x") * (100 << 20)
server = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(server.getsockname())
other = server.accept()[0]
if os.fork():
    print("up", flush=True)
time.sleep(600)
"""

# The first one has a connection with itself; the others, which are large, have none.
WORKERS = """
import os, socket, sys, time
server = socket.create_server(("127.0.0.1", 0))
one = socket.create_connection(server.getsockname())
other = server.accept()[0]
for _ in range(2):
    if not os.fork():
        for end in (server, one, other):
            end.close()
        large = bytearray(b"x") * (100 << 20)
        print("up", flush=True)
        time.sleep(600)
for line in sys.stdin:
    one.sendall(b"late")
    print(other.recv(8).decode(), flush=True)
"""
TRIES, PAUSE_S = 20, 0.01  # mostly CRIU sees that a process is gone, and tidies up


def test_a_tree_that_is_killed_in_a_dump_leaves_nothing_cut(
    tmp_path: Path, need: Callable[[str, bool, str], None]
) -> None:
    need("nodes", not movable.lacks(), movable.lacks())
    said = tmp_path / "said"
    with said.open("wb") as out:
        command = [sys.executable, "-c", PROGRAM]
        ends = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
        root = subprocess.Popen(command, **ends, start_new_session=True)
    try:
        wait_for(lambda: "up" in said.read_text(), 30, said.read_text)
        keys = tree.filter_keys(tree.connections(tree.members(root.pid)))
        program = criu.find()
        assert program
        assert keys
        (tmp_path / "image").mkdir()
        arguments = criu.dump_arguments(program, root.pid, tmp_path / "image", [])
        dump = subprocess.Popen(arguments, stdin=subprocess.DEVNULL)
        wait_for(lambda: bool(packet_filter.cutting(keys)), 30, "CRIU cuts the connection")
        Thread(target=dump.wait, daemon=True).start()  # as the supervisor does
        end_dump(dump.pid, root.pid, 30, with_tree=True)
        assert packet_filter.cutting(keys) == []
    finally:
        process_tree.send(tree.members(root.pid), signal.SIGKILL)
        root.wait()


def test_connections_go_on_where_a_worker_is_killed_in_a_dump(
    tmp_path: Path, need: Callable[[str, bool, str], None]
) -> None:
    """A data loader's worker is no client: the job goes on without an image."""
    need("nodes", not movable.lacks(), movable.lacks())
    for at in range(TRIES):
        if _goes_on(tmp_path / str(at), at * PAUSE_S):
            break


def _goes_on(folder: Path, pause_s: float) -> bool:
    """Kill the workers in a dump; say whether CRIU has left at once."""
    folder.mkdir()
    ends = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    root = subprocess.Popen([sys.executable, "-c", WORKERS], **ends, start_new_session=True)
    assert root.stdin
    assert root.stdout
    try:
        for _ in range(2):
            assert root.stdout.readline() == "up\n"
        members = stop_all(lambda: tree.members(root.pid))
        keys = tree.filter_keys(tree.connections(members))
        program = criu.find()
        assert program
        dump = subprocess.Popen(criu.dump_arguments(program, root.pid, folder, []))
        wait_for(lambda: bool(packet_filter.cutting(keys)), 30, "CRIU cuts the connection")
        time.sleep(pause_s)
        process_tree.send([pid for pid in members if pid != root.pid], signal.SIGKILL)
        assert dump.wait(30) != 0
        at_once = bool(packet_filter.cutting(keys))
        let_go(tree.connections([root.pid]), [root.pid])
        process_tree.send([root.pid], signal.SIGCONT)
        said, _ = root.communicate("\n", timeout=30)
        assert said == "late\n"
        return at_once
    finally:
        process_tree.send(tree.members(root.pid), signal.SIGKILL)
        root.wait()
