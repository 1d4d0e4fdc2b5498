"""CRIU leaves its rules in the network's filter when what it dumps is killed; a restore would meet them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread

from job import wait_for

sys.path.insert(0, str(Path(__file__).parent))
import movable  # noqa: E402

from pyft.agent.ended_dump import end_dump  # noqa: E402
from pyft.agent.process import process_tree  # noqa: E402
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
