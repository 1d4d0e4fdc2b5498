"""`pyft run --flush` and `--resume`: a job that goes on when all of it was lost."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import shutil
from pathlib import Path
from typing import Any

import typer

from pyft import _native
from pyft.agent.image_record import left_behind
from pyft.agent.job import job_folder, own_folder
from pyft.agent.job.options import JobOptions
from pyft.agent.process import messages
from pyft.agent.process.notes import make_note
from pyft.agent.supervisor.launcher import Launcher
from pyft.cli import given
from pyft.errors import UsageError
from pyft.flush import manifest, reader
from pyft.flush.codes import Code
from pyft.flush.disk import Disk
from pyft.flush.reader import Loaded
from pyft.images import appended, clocks, criu, reopened, travelling

EVERY_S = 600.0
LOCK = "lock"
WITH_RESUME = ("resume", "flush_every", "log_dir", "report", "metrics_port")


def options_of(
    flush: list[Path], parity: int | None, every: float | None, is_real: bool, head: str
) -> dict[str, Any]:
    """Return the options of a job that is flushed; raise UsageError where it cannot be."""
    if not flush:
        if every is not None or parity is not None:
            raise UsageError("--flush-every and --parity need --flush DIR")
        return {}
    if is_real or head:
        what = "GPUs of the driver" if is_real else "several hosts"
        raise UsageError(f"--flush does not work with {what} in this version: use --gpus soft:N")
    _check_criu()
    folders = _folders(flush)
    parity = min(1, len(folders) - 1) if parity is None else parity
    _check_code(len(folders), parity)
    check_unused(folders)
    for folder in folders:
        _make(folder)
    every = EVERY_S if every is None else every
    return {"flush": tuple(map(str, folders)), "parity": parity, "flush_every": every}


def check_unused(folders: list[Path]) -> None:
    """Refuse folders with lines, and tell those that a job can go on from."""
    if manifest.lines_in(folders):
        again = " ".join(f"--resume {folder}" for folder in folders)
        raise UsageError(
            f"[{folders[0]}] has lines of a job: go on with it by `pyft run {again}`, or name "
            "another folder"
        )
    if manifest.last_number(folders):
        raise UsageError(
            f"[{folders[0]}] has lines that are not whole, and none to go on from: name another "
            "folder, or remove them"
        )


def _folders(named: list[Path]) -> list[Path]:
    folders = [folder.resolve() for folder in named]
    if len(set(folders)) < len(folders):
        raise UsageError("a folder is named twice")
    return folders


def _make(folder: Path) -> None:
    """Make a folder, and keep other jobs out of it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        Disk().sync_folder(folder.parent)
    except OSError as error:
        raise UsageError(f"[{folder}] cannot be used: {error.strerror}") from None
    reader.check_owner(folder)
    _lock(folder)


def _check_code(folders: int, parity: int) -> None:
    try:
        Code(folders - parity, parity)
    except ValueError as error:
        raise UsageError(f"[{folders}] folders of which [{parity}] may be lost: {error}") from None


def check_given(context: typer.Context, command: list[str] | None) -> None:
    """Refuse what a job that is resumed has of its own."""
    others = [name for name in given.names(context) if name not in WITH_RESUME]
    if command or others:
        what = "a command" if command else given.option(others[0])
        raise UsageError(f"--resume has command and options of the job: leave [{what}] away")


def resume(named: list[Path], every: float | None, log: Path | None, metrics_port: int) -> Launcher:
    """Return the launcher of a job that goes on."""
    _check_criu()
    folders = _folders(named)
    if not manifest.lines_in(folders):
        raise UsageError(f"[{folders[0]}] has no line of a job: nothing can be resumed")
    for folder in folders:
        _make(folder)
    _, log_dir = own_folder.take(job_folder.new_job_name(), log)
    loaded = reader.newest(folders, log_dir / "images")
    try:
        _say_damage(loaded)
        own = {"log_dir": log_dir, "metrics_port": metrics_port}
        options = _options(loaded, folders, own | ({} if every is None else {"flush_every": every}))
        options.check_native_files()
        _set_aside(folders, loaded.refused)
        clocks.go_on(loaded.manifest.about["image"]["record"]["clocks"])
        step, number = loaded.manifest.step, loaded.manifest.number
        where = ", ".join(map(str, folders))
        messages.say(f"--resume: goes on after step [{step}], line [{number}] of [{where}]")
        return _launcher(loaded, options, manifest.last_number(folders))
    except BaseException:
        loaded.drop()
        raise


def _say_damage(loaded: Loaded) -> None:
    for number, why in loaded.refused.items():
        messages.say(f"--resume: line [{number}] is not taken: {why}")
    if loaded.mended:
        messages.say(
            f"--resume: of line [{loaded.manifest.number}] cells were lost in "
            f"[{len(loaded.mended)}] of [{loaded.manifest.stripes}] stripes: made again from the "
            "other folders"
        )


def _options(loaded: Loaded, folders: list[Path], own: dict[str, Any]) -> JobOptions:
    about = loaded.manifest
    if len(folders) != about.each:
        raise UsageError(
            f"the job was flushed into [{about.each}] folders, and [{len(folders)}] are named: name "
            "all of them, and a new one for each that is lost"
        )
    image = about.about["image"]
    wanted = {field.name for field in dataclasses.fields(JobOptions)}
    values = {name: value for name, value in image["options"].items() if name in wanted} | own
    values |= {"command": tuple(values["command"]), "parity": about.parity, "real_gpus": ()}
    values |= {"flush": tuple(map(str, folders)), "movable": True, "direct": False}
    return JobOptions(**values, native_dir=_native.native_dir())


def _launcher(loaded: Loaded, options: JobOptions, last: int) -> Launcher:
    """Return the launcher of a job whose first agent finds a restore that was begun."""
    image = loaded.manifest.about["image"]
    record = image["record"] | {"folder": str(loaded.folder)}
    notes = record.get("logs", [])
    record["logs"], moved = travelling.make_all(notes, loaded.folder, may_have_booted=True)
    if noted := record.pop("reopened", None):
        besides = appended.from_notes(record["logs"])
        reopened.cut_back(reopened.from_note(noted), besides, may_have_booted=True)
    for sentence in moved:
        messages.say(sentence)
    # Numbers of lines are never used twice: of one that is damaged something may be there.
    left = left_behind(record, loaded.memory, {"number": last})
    kept = {name: [make_note(name, note), *fds] for name, (note, fds) in left.items()}
    return Launcher(options, image["clients_name"], kept)


def _set_aside(folders: list[Path], refused: dict[int, str]) -> None:
    """Give damaged lines another name, so that they are not counted among those that are kept."""
    for old in (folder / manifest.name_of(n) for n in refused for folder in folders):
        new = old.with_name(old.name + manifest.REFUSED)
        shutil.rmtree(new, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.rename(old, new)


def _lock(folder: Path) -> None:
    """Keep other jobs out as long as this process and the supervisor live: both have it."""
    try:
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UsageError(f"[{folder}] is in use by a job that runs") from None
    except OSError as error:
        raise UsageError(f"[{folder}] cannot be used: {error.strerror}") from None


def _check_criu() -> None:
    if why := criu.lacks(criu.find()):
        raise UsageError(f"--flush and --resume need images of processes: {why}")
