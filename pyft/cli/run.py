"""`pyft run`: run a command on pyft's GPUs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import time
from dataclasses import replace
from pathlib import Path

import typer

from pyft import _native, config
from pyft.agent.job import job_folder, kept_jobs, own_folder
from pyft.agent.job.gpus import choose
from pyft.agent.job.options import JobOptions, check_protection
from pyft.agent.job.redundancy_options import BUDGET, MEMORY
from pyft.agent.process import messages
from pyft.agent.supervisor.launcher import Launcher
from pyft.cli import flushed, given, run_options, several, swallowed
from pyft.cli.run_options import Dmr, OnNoSpare, Protect, StandBy, Unsupported
from pyft.errors import CommandError, PyftError, UsageError
from pyft.hosts.spare import leaving
from pyft.recovery import requests
from pyft.recovery.inject import check_point, parse
from pyft.spans import process


def run(
    context: typer.Context,
    command: run_options.Command = None,
    gpus: run_options.Gpus = None,
    direct: run_options.Direct = False,
    spares: run_options.Spares = 0,
    protect: run_options.ProtectOption = run_options.DEFAULT,
    movable: run_options.Movable = False,
    flush: run_options.Flush = None,
    parity: run_options.Parity = None,
    flush_every: run_options.FlushEvery = None,
    resume: run_options.Resume = None,
    head: run_options.Head = "",
    place: run_options.Place = None,
    address: run_options.Address = "",
    host: run_options.HostName = "",
    on_no_spare: run_options.OnNoSpareOption = OnNoSpare.wait,
    standby: run_options.StandByOption = StandBy.spares,
    divergence: run_options.DivergenceOption = None,
    dmr: run_options.DmrOption = Dmr.off,
    dmr_where: run_options.DmrWhereOption = None,
    dmr_budget: run_options.DmrBudget = BUDGET,
    dmr_memory: run_options.DmrMemory = MEMORY,
    inject: run_options.Inject = None,
    metrics_port: run_options.MetricsPort = 0,
    spans: run_options.Spans = False,
    unsupported: run_options.UnsupportedOption = Unsupported.warn,
    log_dir: run_options.LogDir = None,
    report: run_options.Report = None,
) -> None:
    """Run a command with its CUDA calls going to pyft's GPUs; exit as the command does."""
    for sentence in (*config.take_old_names(), *config.warnings()):
        messages.say(sentence)
    config.check()
    check_point(config.get_str("PYFT_FAULT"))
    injections = [parse(text) for text in inject or ()]
    injected = tuple(str(injection) for injection in injections)
    _check_protection(protect, direct, injected, spares)
    requests.check(injections, protect.value)
    if spans:
        process.check()
    if resume:
        flushed.check_given(context, command)
        _finish(flushed.resume(resume, flush_every, log_dir, metrics_port), report, spans)
    if not command:
        raise UsageError("there is no command: say `pyft run ... -- COMMAND`")
    given.check(context)
    swallowed.check(context, command, given=gpus or _usual_gpus())
    _check_command(command)
    own = several.place_of(head, place, host, address) if head else {}
    job = job_folder.new_job_name(own.get("place"))
    chosen = choose(gpus or _usual_gpus(), spares)
    if not head:
        for sentence in requests.beyond(injections, chosen.count):
            messages.say(sentence)
    options = JobOptions(
        job=job,
        log_dir=(log_dir or job_folder.state_folder() / job).resolve(),
        native_dir=_native.native_dir(),
        devices=chosen.count,
        real_gpus=chosen.real,
        direct=direct,
        spares=spares,
        strict=unsupported is Unsupported.error,
        movable=movable or bool(head or flush),
        **flushed.options_of(flush or [], parity, flush_every, bool(chosen.real), head),
        **own,
        protect="none" if direct else protect.value,
        on_no_spare=on_no_spare.value,
        standby=standby.value,
        divergence=divergence.value if divergence else "",
        dmr=dmr.value,
        dmr_where=dmr_where.value if dmr_where else "",
        dmr_budget=dmr_budget,
        dmr_memory=dmr_memory,
        inject=injected,
        metrics_port=metrics_port,
        command=tuple(command),
    )
    _run(options, log_dir, report, spans)


def _run(options: JobOptions, log_dir: Path | None, report: Path | None, spans: bool) -> None:
    """Start the job; this process ends with its exit code."""
    check_protection(options)
    options.check_native_files()
    job, folder = own_folder.take(options.job, log_dir)
    _finish(Launcher(replace(options, job=job, log_dir=folder)), report, spans)


def _finish(launcher: Launcher, report: Path | None, spans: bool) -> None:
    """Run the job to its end."""
    log_dir = launcher.options.log_dir
    if report:
        _check_report(report)
    started = time.monotonic()
    more: dict[str, object] = {"log_dir": str(log_dir)}
    try:
        with process.following(log_dir) if spans else contextlib.nullcontext() as sender:
            launcher.spared = (sender,) if sender else ()
            code = leaving.run(launcher)
    except PyftError as error:  # pyft returns its own exit code
        more["exit_code"] = error.exit_code
        raise
    finally:
        kept_jobs.remove_old(log_dir)
        if report:
            _write_report(report, log_dir, more | {"seconds": time.monotonic() - started})
    messages.flush_and_exit(code)


def _write_report(report: Path, log_dir: Path, more: dict[str, object]) -> None:
    """Write what the job has left, however it has ended."""
    summary = job_folder.read_meta(log_dir) | more
    try:
        report.write_text(json.dumps(summary, indent=1) + "\n")
    except OSError as error:  # the command has run: its exit code counts
        messages.say(f"--report [{report}] cannot be written: {error.strerror}")


def _check_protection(protect: Protect, direct: bool, inject: tuple[str, ...], spares: int) -> None:
    if protect is Protect.jit and config.get_str("PYFT_REPLAY") == "all":
        raise UsageError(
            "--protect jit needs ranks that are replaced alone: PYFT_REPLAY=all goes with "
            "--protect snapshot only"
        )
    if direct and inject:
        raise UsageError("--inject needs servers: leave --direct away, or set SOFTGPU_FAULT")
    if direct and spares:
        raise UsageError("--spares needs servers: leave --direct away")


def _usual_gpus() -> str | None:
    """Return what PYFT_GPUS says, unless it comes from a job in which this process runs."""
    return None if config.get_str("PYFT_JOB") else config.get_str("PYFT_GPUS") or None


def _check_command(command: list[str]) -> None:
    """Tell how a script is run that is no command."""
    script = Path(command[0])
    if script.suffix == ".py" and script.is_file() and not os.access(script, os.X_OK):
        words = " ".join(["python", *command])
        raise CommandError(f"[{script}] cannot be executed: say `pyft run ... -- {words}`", 126)
    if script.suffix == ".py" and not shutil.which(str(script)) and not script.exists():
        raise CommandError(f"there is no script [{script}] in [{Path.cwd()}]", 127)


def _check_report(report: Path) -> None:
    """Refuse a file that could not be written before hours of training, not after.

    One of an earlier job goes: should this one leave no report, there is none.
    """
    try:
        with report.open("a") as file:
            is_file = stat.S_ISREG(os.fstat(file.fileno()).st_mode)  # and no pipe
            if is_file:
                file.truncate(0)
        if is_file and not report.is_symlink():
            with contextlib.suppress(OSError):  # of a folder that is not ours: an empty file stays
                report.unlink()
    except OSError as error:
        raise UsageError(f"--report [{report}] cannot be written: {error.strerror}") from None
