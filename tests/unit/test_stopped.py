"""Processes stand still as long as their memory is copied, and go on whatever comes of that."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from job import wait_for

from pyft.agent.process import stopped as tried
from pyft.agent.process.stopped import stopped

COUNTS = """
import sys, threading
def write(sign):
    while True:
        sys.stdout.buffer.raw.write(sign)
for sign in (b"a", b"b", b"c"):
    threading.Thread(target=write, args=(sign,)).start()
"""


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """Return one whose threads write all the time."""
    started = subprocess.Popen([sys.executable, "-c", COUNTS], stdout=subprocess.PIPE)
    yield started
    started.kill()
    started.wait()


def drain(process: subprocess.Popen[bytes]) -> int:
    """Take all that was written."""
    assert process.stdout
    os.set_blocking(process.stdout.fileno(), False)
    return sum(map(len, iter(lambda: process.stdout.read(1 << 16) or b"", b"")))


def test_all_threads_stop_and_then_go_on(process: subprocess.Popen[bytes]) -> None:
    wait_for(lambda: drain(process) > 0, 30, "it writes")
    with stopped([process.pid]):
        drain(process)
        time.sleep(0.05)
        assert drain(process) == 0
    wait_for(lambda: drain(process) > 0, 30, "it goes on")


def test_it_goes_on_if_what_was_to_be_done_fails(process: subprocess.Popen[bytes]) -> None:
    with pytest.raises(OSError, match="no room"), stopped([process.pid]):
        raise OSError(28, "no room")
    wait_for(lambda: drain(process) > 0, 30, "it goes on")


def test_one_that_does_not_stop_is_named(
    process: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tried, "STOP_S", 0.01)
    monkeypatch.setattr(tried.process_tree, "send", lambda pids, number: None)
    why = rf"the server \[pid {process.pid}\] does not stop"
    with pytest.raises(OSError, match=why), stopped([process.pid]):
        pass


def test_one_that_has_ended_stands_still(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    with stopped([process.pid]):
        pass
