"""`pyft top` on a real terminal: tmux shows a job, a key loses its server, and the job goes on."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from job import PYFT, Job, wait_for
from rich.console import Console
from rich.text import Text

TMUX = shutil.which("tmux")
SNAPSHOT = re.compile(r"serving +\d+ .*last snapshot at cut \d")
PROGRAM = """
import sys, time, torch
x = torch.ones(8, device="cuda", requires_grad=True)
optimizer = torch.optim.SGD([x], lr=0.1)
while not __import__("os").path.exists(sys.argv[1]):
    x.sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.05)
print("ended", x.isfinite().all().item())
"""


class Terminal:
    """A terminal of 110 columns, of a tmux of its own."""

    def __init__(self, command: list[str]) -> None:
        self._name = f"pyft-{uuid.uuid4().hex[:8]}"
        words = ("new-session", "-d", "-x", "110", "-y", "24", *command)
        size = ("COLUMNS", "LINES")  # pytest's: that of this terminal is to count
        environment = {name: value for name, value in os.environ.items() if name not in size}
        tmux = [str(TMUX), "-L", self._name, "-f", "/dev/null"]
        subprocess.run([*tmux, *words], check=True, env=environment)

    def _tmux(self, *words: str) -> str:
        done = subprocess.run([str(TMUX), "-L", self._name, *words], capture_output=True, text=True)
        return done.stdout

    def text(self, *options: str) -> str:
        return self._tmux("capture-pane", "-p", *options)

    def press(self, keys: str) -> None:
        self._tmux("send-keys", "-l", keys)

    def enter(self) -> None:
        self._tmux("send-keys", "Enter")

    def is_there(self) -> bool:
        return bool(self._tmux("list-sessions"))

    def end(self) -> None:
        self._tmux("kill-server")


@pytest.fixture
def training(tmp_path: Path, jobs: list[Job]) -> tuple[Job, Path]:
    """A job that makes steps until a file is there."""
    (tmp_path / "train.py").write_text(PROGRAM)
    go = tmp_path / "go"
    words = [sys.executable, str(tmp_path / "train.py"), str(go)]
    job = Job(tmp_path, words, options=("--gpus", "soft:1", "--spares", "1"))
    jobs.append(job)
    job.wait_attached()
    return job, go


def save(terminal: Terminal, file: Path, hidden: Path) -> None:
    """Write the picture of a terminal; it is to load nothing, and to be of no machine."""
    from rich.console import CONSOLE_SVG_FORMAT

    text = terminal.text("-e").replace(str(hidden), "~").replace(f"{sys.executable}", "python")
    text = re.sub(r"~/go|/tmp/\S*", lambda found: "go".ljust(len(found.group())), text)
    console = Console(record=True, width=110, file=io.StringIO())
    console.print(Text.from_ansi(text.rstrip()))
    style = CONSOLE_SVG_FORMAT
    while "@font-face {{" in style:
        begin = style.index("@font-face {{")
        style = style[:begin] + style[style.index("}}", begin) + 2 :]
    file.write_text(console.export_svg(title="pyft top", code_format=style))


def test_a_job_on_a_terminal(
    training: tuple[Job, Path],
    tmp_path: Path,
    need: Callable[..., None],
    request: pytest.FixtureRequest,
) -> None:
    need("tmux", TMUX is not None, "the Debian package tmux is not installed")
    job, go = training
    terminal = Terminal([PYFT, "top", "--every", "0.2", str(job.log_dir)])
    try:
        wait_for(lambda: "protected 1 of 1 ranks" in terminal.text(), 180, "the job is shown")
        wait_for(lambda: SNAPSHOT.search(terminal.text()), 180, "a snapshot is shown")
        terminal.press("igpu-lost,rank=0")
        terminal.enter()
        wait_for(lambda: "Let fault gpu-lost,rank=0 happen" in terminal.text(), 60, "a question")
        assert "no faults so far" in terminal.text()
        terminal.press("y")
        wait_for(lambda: "recovered, exact" in terminal.text(), 180, "the recovery is shown")
        text = terminal.text()
        assert "0 > 1" in text
        assert "recovered 1 of 1 faults" in text
        if folder := request.config.getoption("--pictures"):
            save(terminal, Path(folder) / "top.svg", tmp_path)
        terminal.press("q")
        wait_for(lambda: not terminal.is_there(), 60, "it ends at q")
        go.touch()
        assert job.wait(180) == 0, job.errors()
        assert job.output() == "ended True\n"
    except AssertionError:
        print(terminal.text(), job.errors())
        raise
    finally:
        terminal.end()
