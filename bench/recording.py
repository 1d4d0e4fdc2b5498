"""What a program prints, kept as the picture of a terminal (SVG)."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

from rich.console import CONSOLE_SVG_FORMAT, Console
from rich.text import Text

WIDTH = 96
# Pages that show the picture are to load nothing from elsewhere.
_FONT = re.compile(r"@font-face \{\{.*?\}\}\s*", re.DOTALL)
SVG_FORMAT = _FONT.sub("", CONSOLE_SVG_FORMAT)


class Recording:
    """Prints lines, and keeps them. A line that is not finished (`progress`) is not kept."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._unfinished = False

    def say(self, line: str = "") -> None:
        """Print a line and keep it."""
        self._clear()
        print(line, flush=True)
        self._lines.append(line)

    def progress(self, line: str) -> None:
        """Show a line until the next one, on a terminal only."""
        if sys.stdout.isatty():
            print(f"\r{line}", end="", flush=True)
            self._unfinished = True

    def save(self, path: Path, command: str) -> None:
        """Write the picture: a prompt with the command, then all lines."""
        console = Console(record=True, width=WIDTH, file=io.StringIO())
        console.print(Text(f"$ {command}", style="bold"))
        for line in self._lines:
            console.print(Text(line, style=_style(line)), soft_wrap=False)
        path.write_text(console.export_svg(title="pyft", code_format=SVG_FORMAT))

    def _clear(self) -> None:
        if self._unfinished:
            print("\r\x1b[K", end="")
        self._unfinished = False


def _style(line: str) -> str:
    """Return how a line is shown: what pyft itself says stands out."""
    if line.startswith("pyft: rank"):
        return "bold green"
    return "yellow" if line.startswith(("pyft:", "softgpu:")) else ""
