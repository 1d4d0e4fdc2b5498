"""`pyft run`: run a command on pyft's GPUs."""

from __future__ import annotations

import enum
import json
import time
from pathlib import Path
from typing import Annotated

import typer

from pyft import _native, config
from pyft.agent import job_folder, messages
from pyft.agent.launcher import Launcher
from pyft.agent.options import JobOptions, parse_gpus
from pyft.errors import UsageError


class Unsupported(str, enum.Enum):
    """What an unsupported call does."""

    warn = "warn"
    error = "error"


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="The command, left untouched.")
    ],
    gpus: Annotated[
        str | None, typer.Option(help="soft:N gives the command N software GPUs.")
    ] = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="Software GPUs inside the command: no servers.")
    ] = False,
    spares: Annotated[
        int, typer.Option(min=0, help="Further GPUs the command does not see, for replacements.")
    ] = 0,
    unsupported: Annotated[
        Unsupported,
        typer.Option(help="A call pyft does not support: name it and go on, or stop the process."),
    ] = Unsupported.warn,
    log_dir: Annotated[
        Path | None, typer.Option(help="Folder for traces and meta.json of this job.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Write a summary of the job to this JSON file.")
    ] = None,
) -> None:
    """Run a command with its CUDA calls going to pyft's GPUs; exit as the command does."""
    for sentence in config.warnings():
        messages.say(sentence)
    job = job_folder.new_job_name()
    options = JobOptions(
        job=job,
        log_dir=(log_dir or job_folder.state_folder() / job).resolve(),
        native_dir=_native.native_dir(),
        devices=parse_gpus(gpus, spares),
        direct=direct,
        spares=spares,
        strict=unsupported is Unsupported.error,
        command=tuple(command),
    )
    options.check_native_files()
    job_folder.create(options.log_dir)
    if report:
        _check_report(report)
    started = time.monotonic()
    code = Launcher(options).run()
    if report:
        summary = job_folder.read_meta(options.log_dir)
        summary |= {"log_dir": str(options.log_dir), "seconds": time.monotonic() - started}
        try:
            report.write_text(json.dumps(summary, indent=1) + "\n")
        except OSError as error:  # the command has run: its exit code counts
            messages.say(f"--report [{report}] cannot be written: {error.strerror}")
    messages.flush_and_exit(code)


def _check_report(report: Path) -> None:
    """Refuse a file that could not be written before hours of training, not after."""
    try:
        with report.open("a"):
            pass
    except OSError as error:
        raise UsageError(f"--report [{report}] cannot be written: {error.strerror}") from None
