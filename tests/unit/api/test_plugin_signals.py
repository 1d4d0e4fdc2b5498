"""`pytest --pyft-gpus`: what signals do while the tests run in a job of their own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

# Slower to end than subprocess.run() lets a child be at Ctrl-C (0.25 s).
CHILD = """
import os, signal, time

def end(number, _):
    time.sleep(1)
    os._exit(40 + number)

signal.signal(signal.SIGINT, end)
signal.signal(signal.SIGTERM, end)
print("ready", flush=True)
time.sleep(60)
os._exit(1)
"""
PARENT = """
import sys
from pyft.api.pytest_plugin import _run
sys.exit(_run([sys.executable, "-c", sys.argv[1]]))
"""


def wait_until_it_catches(pid: int, number: signal.Signals) -> None:
    until = time.monotonic() + 60
    while True:
        (caught,) = re.findall(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.M)
        if int(caught, 16) >> (number - 1) & 1:
            return
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_job_ends_by_itself(number: signal.Signals) -> None:
    words = [sys.executable, "-c", PARENT, CHILD]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as parent:
        assert parent.stdout
        assert parent.stdout.readline() == b"ready\n"
        wait_until_it_catches(parent.pid, signal.SIGTERM)
        if number == signal.SIGINT:
            os.killpg(parent.pid, number)  # as a terminal does
        else:
            parent.send_signal(number)
        assert parent.wait(60) == 40 + number


def test_a_job_that_a_signal_ended() -> None:
    child = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert subprocess.run([sys.executable, "-c", PARENT, child]).returncode == 128 + signal.SIGKILL
