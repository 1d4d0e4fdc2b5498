"""Options of `pyft run` that were written behind the command, where they are the command's own."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from typing import Any

import typer

from pyft.cli.help import WORDS
from pyft.errors import UsageError

# Scripts have options of these names, too: they are no sign of a mistake.
OF_SCRIPTS = ("--head", "--address", "--host", "--place", "--report", "--resume", "--log-dir")


def check(context: typer.Context, command: Sequence[str], *, given: str | None) -> None:
    """Raise UsageError, with the line that is meant, for a command that cannot be right.

    `given`: the GPUs. A command that can be started, with GPUs, is left alone whatever it has.
    """
    can_start = shutil.which(command[0]) is not None
    if (given and can_start) or _is_behind_dashes(context, command):
        return
    mine, others = _divided(context.command.params, command)
    if not mine or not (given or any(word.startswith("--gpus") for word in mine)):
        return
    if others and others[0].endswith(".py") and not can_start:
        others = ["python", *others]
    typed = context.meta.get(WORDS, [])
    before = [word for word in typed[: len(typed) - len(command)] if word != "--"]
    line = shlex.join(["pyft", "run", *before, *mine, "--", *others])
    raise UsageError(f"options of pyft come before the command: say `{line}`")


def _is_behind_dashes(context: typer.Context, command: Sequence[str]) -> bool:
    """Say whether a `--` in front tells all of it from pyft's options."""
    before = context.meta.get(WORDS, [])[: -len(command)]
    return bool(before) and before[-1] == "--"


def _divided(options: Sequence[Any], command: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return which words are options of pyft with their values, and all others."""
    known = {name: one for one in options for name in one.opts if name.startswith("--")}
    mine: list[str] = []
    words = list(command)
    others = [words.pop(0)]
    while words and words[0] != "--":
        word = words.pop(0)
        name, has_value, _ = word.partition("=")
        if name not in known or name in OF_SCRIPTS:
            others.append(word)
            continue
        mine.append(word)
        if not has_value and not known[name].is_flag and words:
            mine.append(words.pop(0))
    return mine, others + words[words[:1] == ["--"] :]
