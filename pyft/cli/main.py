"""Entry of the `pyft` command."""

from __future__ import annotations

import io
import sys
from typing import Annotated

import typer

import pyft
from pyft.agent.process import messages
from pyft.cli import (
    coverage,
    demo,
    doctor,
    env,
    lab,
    orders,
    plan,
    report,
    run,
    several,
    status,
    top,
    trace,
)
from pyft.cli.help import Command, Grouped, examples
from pyft.errors import PyftError

app = typer.Typer(
    cls=Grouped,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=examples(""),
)
COMMANDS = {
    "demo": demo.demo,
    "run": run.run,
    "status": status.status,
    "top": top.top,
    "report": report.report,
    "plan": plan.plan,
    "head": several.head,
    "host": several.host,
    "replace": orders.replace,
    "drain": orders.drain,
    "move": orders.move,
    "spare": orders.spare,
    "inject": orders.inject,
    "trace": trace.trace,
    "coverage": coverage.coverage,
    "doctor": doctor.doctor,
    "env": env.env,
    "lab": lab.lab,
}
# Everything behind the first word that is not an option belongs to the user's command.
SETTINGS = {"run": {"allow_interspersed_args": False}, "lab": lab.SETTINGS}
for _name, _function in COMMANDS.items():
    _about = {"context_settings": SETTINGS.get(_name), "epilog": examples(_name)}
    app.command(name=_name, cls=Command, **_about)(_function)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(pyft.__version__)
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version."),
    ] = False,
) -> None:
    """Run an unmodified PyTorch CUDA script so that it survives the loss of a GPU."""


@app.command()
def version() -> None:
    """Print the version."""
    print(pyft.__version__)


def main() -> None:
    """Run a sub-command; errors meant for the user become one sentence on stderr."""
    # A job's command may have any bytes, and a terminal few letters.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        app()
    except PyftError as error:
        messages.say(str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `pyft trace | head`
        messages.flush_and_exit(141)
