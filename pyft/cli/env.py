"""`pyft env`: the PYFT_* variables."""

from __future__ import annotations

from typing import Annotated

import typer

from pyft import config


def env(
    markdown: Annotated[bool, typer.Option(help="Print docs/env-vars.md.")] = False,
) -> None:
    """List every PYFT_* variable with its value and meaning."""
    if markdown:
        print(config.markdown(), end="")
        return
    for knob in config.KNOBS:
        if not knob.internal:
            print(f"{knob.name}={config.get(knob.name)}  # {knob.help}")
    for sentence in config.warnings():
        print(f"warning: {sentence}")
