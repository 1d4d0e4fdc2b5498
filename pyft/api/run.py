"""`pyft.run`: a job from Python, in notebooks and tests."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import IO, Any, TextIO

from pyft.api.state import Fault
from pyft.errors import PyftError, UsageError
from pyft.report import lanes, page

END_S = 15.0  # a job that is told to end needs less


class JobError(PyftError):
    """A job has ended with an exit code that is not 0, or did not end in time."""

    def __init__(self, text: str, result: Result) -> None:
        super().__init__(text)
        self.result = result


@dataclass(frozen=True)
class Result:
    """A job that has ended."""

    exit_code: int
    stdout: str
    stderr: str
    report: Mapping[str, Any]  # docs/operate/report.md; empty if the job never began

    @property
    def folder(self) -> Path:
        """Return the job's folder, with its traces."""
        return Path(self.report.get("log_dir", ""))

    @property
    def faults(self) -> list[Fault]:
        """Return what has gone wrong, and what became of it."""
        return [Fault.of(one) for one in self.report.get("recovery", {}).get("faults", [])]

    def html(self) -> str:
        """Return the page of the job, as `pyft report` writes it."""
        return page.html(lanes.read(self.folder))

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        found = self.report.get("recovery", {})
        rows = "".join(
            f"<li>rank {one.rank}: {escape(f'{one.kind}, {one.outcome}')} after "
            f"{one.seconds:.2f} s</li>"
            for one in self.faults
        )
        goodput = f"{found.get('goodput', 1.0):.2%} of the time at work"
        return f"<p>exit code {self.exit_code}, {goodput}</p><ul>{rows}</ul>"


def run(
    command: str | Path | Sequence[str | Path],
    *,
    gpus: str = "soft:1",
    spares: int = 0,
    inject: str | Sequence[str] = (),
    options: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    timeout: float | None = None,
    quiet: bool = False,
    check: bool = True,
) -> Result:
    """Run a command on pyft's GPUs and wait for its end, as `pyft run` does.

    `command`: a list of words, or a Python script. `inject`: faults on request. `options`: other
    options of `pyft run`. `env` is added to the environment. Output appears as it comes, in
    notebooks as well, unless `quiet`. Raises JobError when the exit code is not 0, unless `check` is
    False, and when the job has not ended after `timeout` seconds; then it is ended first.
    """
    with tempfile.TemporaryDirectory(prefix="pyft-run-") as folder:
        others, wanted = _report_in(options)
        report = Path(cwd or "") / (wanted or Path(folder) / "report.json")
        asked = (gpus, spares, [inject] if isinstance(inject, str) else inject, others)
        words = [*_pyft_run(*asked), "--report", str(report.absolute()), "--", *_words(command)]
        ended, in_time = _execute(words, os.environ | (env or {}), cwd, timeout, quiet)
        found: dict[str, Any] = {}
        with contextlib.suppress(OSError, ValueError):  # it never began
            found = json.loads(report.read_text())
    result = Result(ended[0], ended[1], ended[2], found)
    if not in_time:
        raise JobError(f"the job has not ended after [{timeout:g} s], and was ended", result)
    if check and result.exit_code:
        last = "\n".join(result.stderr.splitlines()[-5:])
        raise JobError(f"the job has ended with exit code [{result.exit_code}]: {last}", result)
    return result


def _report_in(options: Sequence[str]) -> tuple[list[str], str]:
    """Return options without --report, and the file that it names: the last one counts."""
    left: list[str] = []
    wanted, words = "", iter(options)
    for word in words:
        name, has_value, value = word.partition("=")
        if name == "--report":
            wanted = value if has_value else next(words, "")
        else:
            left.append(word)
    return left, wanted


def _pyft_run(gpus: str, spares: int, inject: Sequence[str], options: Sequence[str]) -> list[str]:
    faults = [word for fault in inject for word in ("--inject", fault)]
    return [*program(), "run", "--gpus", gpus, "--spares", str(spares), *faults, *options]


def program() -> list[str]:
    """Return the words that start the `pyft` command of this Python."""
    script = Path(sys.executable).with_name("pyft")  # -m would prefer a folder [pyft] right here
    return [str(script)] if script.is_file() else [sys.executable, "-m", "pyft"]


def _words(command: str | Path | Sequence[str | Path]) -> list[str]:
    """Return the command as a list; a script is run by this Python."""
    words = [command] if isinstance(command, (str, Path)) else list(command)
    if not words:
        raise UsageError("the command is empty")
    if str(words[0]).endswith(".py"):
        words = [sys.executable, *words]
    return [str(word) for word in words]


def _execute(
    words: Sequence[str],
    environment: Mapping[str, str],
    cwd: str | Path | None,
    timeout: float | None,
    quiet: bool,
) -> tuple[tuple[int, str, str], bool]:
    """Return exit code and output of a process, and whether it has ended by itself."""
    process = subprocess.Popen(
        words,
        env=dict(environment),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stdout
    assert process.stderr
    kept: tuple[list[str], list[str]] = ([], [])
    with (
        _reading(process.stdout, kept[0], None if quiet else sys.stdout),
        _reading(process.stderr, kept[1], None if quiet else sys.stderr),
    ):
        in_time = _wait(process, timeout)
    return (process.returncode, "".join(kept[0]), "".join(kept[1])), in_time


def _wait(process: subprocess.Popen[str], timeout: float | None) -> bool:
    """Wait for the end; end it when that takes too long, or when Ctrl-C is pressed."""
    try:
        process.wait(timeout)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def _reading(source: IO[str], kept: list[str], shown: TextIO | None) -> Iterator[None]:
    """Keep what a process prints, and show it line by line, as long as the block lasts."""

    def read() -> None:
        for line in source:
            kept.append(line)
            # Closed, or it lacks a letter: read on, or the job would stand still at a full pipe.
            with contextlib.suppress(OSError, ValueError):
                if shown:
                    shown.write(line)
                    shown.flush()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(END_S)  # a process that the command has left behind may hold the pipe
        if not thread.is_alive():
            source.close()
