"""`pytest --pyft-gpus soft:2`: tests of GPU code, on machines without GPUs.

pytest starts itself again as the command of `pyft run`, so that every test, and every process that
a test starts, sees the GPUs. The fixture `pyft_job` is the job; a test can inject faults into it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyft.api.state import Fault, JobStatus

INSIDE = "PYFT_JOB"  # set in all processes of a job


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options."""
    group = parser.getgroup("pyft", "pyft: GPUs for tests")
    text = "run all tests on these GPUs of pyft: soft:N for N soft GPUs, or as `pyft run` takes"
    group.addoption("--pyft-gpus", metavar="GPUS", help=text)
    text = "further GPUs that the tests do not see, for replacements"
    group.addoption("--pyft-spares", metavar="N", type=int, default=0, help=text)
    text = "a fault on request, KIND,rank=R[,step=S][,call=C]; repeatable"
    group.addoption("--pyft-inject", metavar="FAULT", action="append", default=[], help=text)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config, args: list[str]) -> None:
    """Start pytest again inside a job, before anything of the user's is imported."""
    options = early_config.known_args_namespace
    if not options.pyft_gpus or INSIDE in os.environ:
        return
    words = [*_pyft_run(options), "--", *_pytest(), *early_config.invocation_params.args]
    manager = early_config.pluginmanager.getplugin("capturemanager")
    if manager:  # what pytest prints is for the user
        manager.suspend_global_capture(in_=True)
    raise SystemExit(_run(words))


def pytest_report_header() -> str | None:
    """Say on which GPUs the tests run."""
    if INSIDE not in os.environ:
        return None
    from pyft import config

    return f"pyft: GPUs {config.get_str('PYFT_GPUS')}, job {config.get_str(INSIDE)}"


class TestJob:
    """The job in which the tests run."""

    __test__ = False  # pytest would take it for a test

    def inject(self, fault: str, rank: int = 0) -> None:
        """Let a fault happen: `inject("gpu-lost")` now, `inject("sticky,call=5")` at a place."""
        import pyft

        pyft.inject(fault, rank=rank)

    def faults(self) -> list[Fault]:
        """Return what has gone wrong so far, and what became of it."""
        import pyft

        return pyft.faults()

    def status(self) -> JobStatus:
        """Return what the job does."""
        import pyft
        from pyft.api import jobs

        (found,) = pyft.status(jobs.own())
        return found


@pytest.fixture
def pyft_job() -> TestJob:
    """Return the job; without --pyft-gpus the test is skipped."""
    if INSIDE not in os.environ:
        pytest.skip("it needs a job of pyft: pytest --pyft-gpus soft:1")
    return TestJob()


def _run(words: Sequence[str]) -> int:
    """Run the job to its end, and return its exit code.

    Ctrl-C is for the tests, which have it from the terminal, and say where they were.
    """
    process = subprocess.Popen(words)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
    code = process.wait()
    return code if code >= 0 else 128 - code


def _pyft_run(options: object) -> list[str]:
    from pyft.api.run import program

    faults: Sequence[str] = getattr(options, "pyft_inject")  # noqa: B009 - a namespace has no types
    words = [word for fault in faults for word in ("--inject", fault)]
    gpus, spares = getattr(options, "pyft_gpus"), getattr(options, "pyft_spares")  # noqa: B009
    return [*program(), "run", "--gpus", gpus, "--spares", str(spares), *words]


def _pytest() -> list[str]:
    """Return the words that start this pytest: its script has another import path than -m."""
    script = Path(sys.argv[0])
    if script.name in ("pytest", "py.test") and script.is_file():
        return [sys.executable, str(script)]
    return [sys.executable, "-m", "pytest"]
