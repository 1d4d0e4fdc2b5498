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
from pyft.agent.gpus import choose
from pyft.agent.launcher import Launcher
from pyft.agent.options import DEFAULT_PROTECT, JobOptions, check_protection
from pyft.errors import NOT_INJECTED, UsageError
from pyft.recovery import requests
from pyft.recovery.inject import KINDS, parse


class Protect(str, enum.Enum):
    """What is kept outside the GPU, so that a fault can be repaired."""

    capture = "capture"
    jit = "jit"
    none = "none"


_DEFAULT_PROTECT = Protect(DEFAULT_PROTECT)


class OnNoSpare(str, enum.Enum):
    """What happens when a GPU is lost and there is no other one."""

    wait = "wait"
    fail = "fail"


class StandBy(str, enum.Enum):
    """For which GPUs a server stands by."""

    spares = "spares"
    all = "all"
    none = "none"


class Divergence(str, enum.Enum):
    """What a replay does that differs from what the program has been told."""

    strict = "strict"
    report = "report"


class Unsupported(str, enum.Enum):
    """What an unsupported call does."""

    warn = "warn"
    error = "error"


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND...", help="The command, left untouched.")
    ],
    gpus: Annotated[
        str | None,
        typer.Option(
            help="soft:N: N software GPUs; auto: all GPUs of the driver; 0,1: those of nvidia-smi."
        ),
    ] = None,
    direct: Annotated[
        bool, typer.Option("--direct", help="Software GPUs inside the command: no servers.")
    ] = False,
    spares: Annotated[
        int, typer.Option(min=0, help="Further GPUs the command does not see, for replacements.")
    ] = 0,
    protect: Annotated[
        Protect,
        typer.Option(
            help="capture: faults are repaired; jit: as long as another rank has the same contents; "
            "none: they are the command's errors."
        ),
    ] = _DEFAULT_PROTECT,
    on_no_spare: Annotated[
        OnNoSpare,
        typer.Option(help="A GPU is lost and no spare is left: wait for one, or fail."),
    ] = OnNoSpare.wait,
    standby: Annotated[
        StandBy,
        typer.Option(
            help="Servers that wait for a fault, started and on their GPU: one for each spare, "
            "for all GPUs (a context on each more), or none."
        ),
    ] = StandBy.spares,
    divergence: Annotated[
        Divergence | None,
        typer.Option(
            help="A replay differs from what the program was told: its calls return an error "
            "(strict, for software GPUs), or it is reported (for GPUs)."
        ),
    ] = None,
    inject: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND,rank=R[,step=S][,call=C][,server=K]",
            help=f"Let a fault happen, for tests: {', '.join(KINDS)}. After step S (a cut, which "
            "follows each step of an optimizer; 0: the start), before its C-th call; without both: as "
            "soon as the server works. server=K: to the K-th server of the rank, which counts from "
            "where it starts (1: the first; 2: the one that replaces it after another fault). "
            f"Repeatable. One that does not happen is named at the end, with the reason, and makes "
            f"the exit code [{NOT_INJECTED}] when the command's is 0.",
        ),
    ] = None,
    metrics_port: Annotated[
        int,
        typer.Option(min=0, max=65535, help="Port of /metrics on 127.0.0.1; 0: none."),
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
    config.check()
    injections = [parse(text) for text in inject or ()]
    injected = tuple(str(injection) for injection in injections)
    _check_protection(protect, direct, injected, spares)
    requests.check(injections, protect.value)
    job = job_folder.new_job_name()
    chosen = choose(gpus, spares)
    options = JobOptions(
        job=job,
        log_dir=(log_dir or job_folder.state_folder() / job).resolve(),
        native_dir=_native.native_dir(),
        devices=chosen.count,
        real_gpus=chosen.real,
        direct=direct,
        spares=spares,
        strict=unsupported is Unsupported.error,
        protect="none" if direct else protect.value,
        on_no_spare=on_no_spare.value,
        standby=standby.value,
        divergence=divergence.value if divergence else "",
        inject=injected,
        metrics_port=metrics_port,
        command=tuple(command),
    )
    check_protection(options)
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


def _check_protection(protect: Protect, direct: bool, inject: tuple[str, ...], spares: int) -> None:
    if protect is Protect.jit and config.get_str("PYFT_REPLAY") == "all":
        raise UsageError(
            "--protect jit needs ranks that are replaced alone: PYFT_REPLAY=all goes with "
            "--protect capture only"
        )
    if direct and inject:
        raise UsageError("--inject needs servers: leave --direct away, or set SOFTGPU_FAULT")
    if direct and spares:
        raise UsageError("--spares needs servers: leave --direct away")


def _check_report(report: Path) -> None:
    """Refuse a file that could not be written before hours of training, not after."""
    try:
        with report.open("a"):
            pass
    except OSError as error:
        raise UsageError(f"--report [{report}] cannot be written: {error.strerror}") from None
