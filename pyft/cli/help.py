"""How `pyft --help` is laid out: commands in groups, whole sentences, examples; and typing errors."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

if TYPE_CHECKING:  # newer typers have a click of their own, and install none
    import click

_REFUSED: Any = typer.BadParameter.__bases__[0]  # UsageError, of whichever click typer has
WORDS = "pyft.words"  # in a context: the arguments as they were typed
LONGEST = 200  # a sentence that is longer is cut off
SECTIONS = {
    "Run and look": ("demo", "run", "status", "top", "report", "plan"),
    "Jobs of several hosts": ("head", "host"),
    "Orders to a job that runs": ("replace", "drain", "move", "spare", "inject"),
    "What a job has asked of its GPUs": ("trace", "coverage"),
    "This machine": ("doctor", "env", "version"),
    "Research": ("lab",),
}
EXAMPLES = {
    "": (
        "pyft demo",
        "pyft run --gpus soft:1 -- python train.py",
        "pyft run --gpus soft:2 --spares 1 -- torchrun --nproc-per-node 2 train.py",
        "pyft report",
    ),
    "run": (
        "pyft run --gpus soft:1 -- python train.py --steps 10",
        "PYFT_GPUS=soft:2 pyft run torchrun --nproc-per-node 2 train.py",
        "pyft run --gpus soft:1 --spares 1 --inject gpu-lost,rank=0,step=5 -- python train.py",
    ),
    "status": ("pyft status", "pyft status --json", "pyft status --head login:29471"),
    "top": ("pyft top", "pyft top 20261123-101500-4711"),
    "report": ("pyft report", "pyft report --list", "pyft report --perfetto trace.json"),
    "plan": ("pyft plan --gigabytes 40 --flush-every 600", "pyft plan --flush /shared/job7"),
    "replace": ("pyft replace --rank 1", "pyft replace --rank 1 --gpu 3"),
    "drain": (
        "pyft drain --gpu 0",
        "pyft drain --host node7 --head login:29471",
        "pyft drain --host node7 --head login:29471 --to node9",
        "pyft drain --host node7 --head login:29471 --cancel",
    ),
    "spare": ("pyft spare --gpu 0",),
    "inject": ("pyft inject --rank 1 --fault gpu-lost", "pyft inject --rank 0 --fault hang,step=9"),
    "trace": ("pyft trace --tail 20", "pyft trace --call Memcpy --stats"),
    "env": ("pyft env", "pyft env --bug-report > report.md"),
}


def examples(command: str) -> str | None:
    """Return the examples of a command as its help ends with them."""
    lines = EXAMPLES.get(command)
    # The mark in front has the lines kept as they are.
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)]) if lines else None


def nearest_first(error: Any) -> None:
    """Have an error about an unknown option name those that are meant, by nearness, not by name."""
    name, known = getattr(error, "option_name", ""), getattr(error, "possibilities", None)
    if known:
        error.message += f": did you mean {' or '.join(get_close_matches(name, known))}?"
        error.possibilities = None


class Command(TyperCommand):
    """A command that says which option was meant, and remembers what was typed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments."""
        ctx.meta[WORDS] = list(args)
        try:
            return super().parse_args(ctx, args)
        except _REFUSED as error:
            nearest_first(error)
            raise


class Grouped(TyperGroup):
    """A command of commands whose help shows them in groups."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list for each group; what belongs to none comes last."""
        known = {name for names in SECTIONS.values() for name in names}
        others = tuple(name for name in self.list_commands(ctx) if name not in known)
        for title, names in {**SECTIONS, "Others": others}.items():
            found = [(name, self.get_command(ctx, name)) for name in names]
            rows = [(n, c.get_short_help_str(LONGEST)) for n, c in found if c and not c.hidden]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
