"""Entry of the `pyft` command."""

from __future__ import annotations

import sys

import typer

import pyft
from pyft.agent import messages
from pyft.cli import coverage, doctor, env, orders, run, status, trace
from pyft.errors import PyftError

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Run an unmodified PyTorch CUDA script against a server process that owns the GPU.",
)
# Everything behind the first word that is not an option belongs to the user's command.
app.command(name="run", context_settings={"allow_interspersed_args": False})(run.run)
app.command(name="replace")(orders.replace)
app.command(name="drain")(orders.drain)
app.command(name="spare")(orders.spare)
app.command(name="inject")(orders.inject)
app.command(name="trace")(trace.trace)
app.command(name="status")(status.status)
app.command(name="coverage")(coverage.coverage)
app.command(name="doctor")(doctor.doctor)
app.command(name="env")(env.env)


@app.command()
def version() -> None:
    """Print the version."""
    print(pyft.__version__)


def main() -> None:
    """Run a sub-command; errors meant for the user become one sentence on stderr."""
    try:
        app()
    except PyftError as error:
        messages.say(str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `pyft trace | head`
        messages.flush_and_exit(141)
