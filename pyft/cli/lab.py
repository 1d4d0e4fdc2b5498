"""`pyft lab`: a package of its own, which is looked for only when it is asked for."""

from __future__ import annotations

from importlib import metadata

import typer

from pyft.errors import UsageError

GROUP = "pyft.commands"  # of entry points: name of a command = function that takes its arguments
# Every word behind `lab` is the other package's, --help as well.
SETTINGS = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


def lab(context: typer.Context) -> None:
    """Compare ways to survive faults: published numbers, models, simulation (pyft[lab])."""
    try:
        (entry,) = metadata.entry_points(group=GROUP, name="lab")
        main = entry.load()
        main(context.args)
    except (ModuleNotFoundError, ValueError) as error:
        missing = getattr(error, "name", None) or "pyft_lab"
        raise UsageError(f"[{missing}] is not installed: pip install 'pyft[lab]'") from error
