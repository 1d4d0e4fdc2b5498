"""Files that are only appended to, where an image goes on at a host that has them not.

What was in them when the image was made travels with it, among its files. Where the image goes on they
are made of that, at their paths. What another host says of a path is no better than what a stranger may
have laid there: no symbolic link is followed, and no file is written over.
"""

from __future__ import annotations

import contextlib
import filecmp
import os
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyft.errors import PyftError
from pyft.images import appended
from pyft.images.appended import Log

MOST_BYTES = 256_000_000  # of one image: they are sent whole with each, and lie beside it
_COPY = "appended-"
_WAY = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_MODE = 0o700  # that of the folder on the other host is not known
_MOST_ASIDE = 1000


class LogError(PyftError):
    """A file that an image appends to cannot be made here."""


# ---- with the image -------------------------------------------------------------------------------


def copies(logs: Sequence[Log], which: Sequence[int]) -> dict[str, Log]:
    """Return the files that travel, by their names among those of the image."""
    return {f"{_COPY}{index}": logs[index] for index in which}


def sizes(found: Mapping[str, Log]) -> dict[str, int]:
    """Return how much of each travels."""
    return {name: log.size for name, log in found.items()}


def paths(found: Mapping[str, Log]) -> dict[str, str]:
    """Return where each is read."""
    return {name: log.path for name, log in found.items()}


def too_large(logs: Sequence[Log]) -> str:
    """Return why files are too large to travel, nothing if they are not."""
    if (size := sum(log.size for log in logs)) <= MOST_BYTES:
        return ""
    largest = max(logs, key=lambda log: log.size)
    return (
        f"files that are appended to have [{size / 1e6:.0f}] MB, of which "
        f"[{largest.size / 1e6:.0f}] MB are in [{largest.path}]; [{MOST_BYTES / 1e6:.0f}] MB travel "
        "with an image"
    )


def of_own_disks(logs: Sequence[Log]) -> tuple[dict[str, Log], str]:
    """Return those that travel because no other host sees them; or none, and why."""
    which = [index for index, log in enumerate(logs) if log.disk]
    why = too_large([logs[index] for index in which])
    return copies(logs, [] if why else which), why


def why_not_here(log: Log) -> str:
    """Return why a file cannot be made on this host, nothing if it can."""
    why = _why_not(log)
    return f"[{log.path}] is appended to, and cannot be made on this host: {why}" if why else ""


def _why_not(log: Log) -> str:
    if os.geteuid() and not _may_give(log):
        return f"it is of user [{log.uid}] and group [{log.gid}]"
    folder, name = os.path.split(log.path)
    try:
        with _way_to(folder) as (there, missing):
            where = os.path.normpath(f"{folder}{'/..' * len(missing)}")
            about = os.fstatvfs(there)
            if about.f_flag & os.ST_RDONLY:
                return f"the file system of [{where}] is read-only"
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=there, effective_ids=True):
                return f"[{where}] cannot be written"
            if about.f_bavail * about.f_frsize < log.size:
                return f"the file system of [{where}] is full"
            found = None if missing else _looked_at(there, name)
            return "what is there is no file" if found and not stat.S_ISREG(found.st_mode) else ""
    except OSError as error:
        return _said(error)


def _may_give(log: Log) -> bool:
    return log.uid == os.geteuid() and log.gid in (os.getegid(), *os.getgroups())


# ---- where the image goes on ----------------------------------------------------------------------


def make_all(
    notes: Any, folder: Path, *, may_have_booted: bool = False
) -> tuple[list[dict[str, Any]], list[str]]:
    """Make the files that this host has not, of their copies in an image's folder.

    Return the notes of all, as they are here, and what has become of other files at their paths. Raise
    LogError when that is impossible; then all is as it was. `may_have_booted`: as in Log.lacks.
    """
    try:
        logs = appended.from_notes(notes)
    except (ValueError, TypeError) as error:
        raise LogError(str(error)) from None
    made, said = [], list[str]()
    with contextlib.ExitStack() as undo:
        for name, log in copies(logs, range(len(logs))).items():
            here = log
            if why := log.lacks(may_have_booted=may_have_booted):
                if not (folder / name).exists():
                    raise LogError(why)
                here, aside = _make(log, folder / name, undo)
                said += aside
            made.append(here.note())
        undo.pop_all()
    for copy in folder.glob(f"{_COPY}*"):  # what is sent on from here is read from the files
        copy.unlink()
    return made, said


def _make(log: Log, copy: Path, undo: contextlib.ExitStack) -> tuple[Log, list[str]]:
    """Make one of its copy; say what was in its way."""
    folder, name = os.path.split(log.path)
    try:
        if not log.is_copied(copy):
            raise LogError(f"[{log.path}] has not come as it was")
        with _made_way_to(folder, log) as there:
            aside = ""
            if found := _looked_at(there, name):
                if _is_made(found, log, copy):  # by one that was killed then
                    return Log.of(log.path), []
                aside = _move_aside(there, name, found)
                undo.callback(os.rename, f"{folder}/{aside}", log.path)
            fd = os.open(name, _NEW, 0o600, dir_fd=there)
            undo.callback(os.unlink, log.path)
            _fill(fd, log, copy)
        said = f"[{log.path}] was another file on this host: it is [{aside}] now, in its folder"
        return Log.of(log.path), [said] if aside else []
    except OSError as error:
        raise LogError(f"[{log.path}] cannot be made on this host: {_said(error)}") from None


def _is_made(found: os.stat_result, log: Log, copy: Path) -> bool:
    about = (stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid, found.st_size)
    wanted = (log.mode, log.uid, log.gid, log.size)
    is_file = stat.S_ISREG(found.st_mode) and about == wanted
    return is_file and filecmp.cmp(copy, log.path, shallow=False)


def _move_aside(there: int, name: str, found: os.stat_result) -> str:
    """Give a file another name, which nothing has, and return that."""
    if not stat.S_ISREG(found.st_mode):
        raise OSError(0, "what is there is no file")
    for number in range(1, _MOST_ASIDE):
        aside = f"{name}.aside-{number}"
        with contextlib.suppress(FileExistsError):
            os.link(name, aside, src_dir_fd=there, dst_dir_fd=there, follow_symlinks=False)
            os.unlink(name, dir_fd=there)
            return aside
    raise OSError(0, f"[{_MOST_ASIDE}] files were moved aside there")


def _fill(fd: int, log: Log, copy: Path) -> None:
    with open(fd, "wb", buffering=0) as file, copy.open("rb", buffering=0) as source:
        shutil.copyfileobj(source, file, 1 << 20)
        os.fchown(fd, log.uid, log.gid)
        os.fchmod(fd, log.mode)
        os.fsync(fd)


# ---- folders --------------------------------------------------------------------------------------


@contextlib.contextmanager
def _way_to(folder: str) -> Iterator[tuple[int, list[str]]]:
    """Open a folder, or the last one on the way to it; yield that, and the names that are missing.

    Raise OSError, with the folder that is none.
    """
    there, names = os.open("/", _WAY), folder.strip("/").split("/") if folder != "/" else []
    try:
        for at, name in enumerate(names):
            try:
                below = os.open(name, _WAY, dir_fd=there)
            except FileNotFoundError:
                yield there, names[at:]
                return
            except OSError as error:
                error.filename = "/" + "/".join(names[: at + 1])
                raise
            os.close(there)
            there = below
        yield there, []
    finally:
        os.close(there)


@contextlib.contextmanager
def _made_way_to(folder: str, log: Log) -> Iterator[int]:
    """Open a folder; those that are missing are made, and are the owner's of the file."""
    with _way_to(folder) as (there, missing):
        last = os.dup(there)
        try:
            for name in missing:
                os.mkdir(name, _FOLDER_MODE, dir_fd=last)
                os.chown(name, log.uid, log.gid, dir_fd=last, follow_symlinks=False)
                below = os.open(name, _WAY, dir_fd=last)
                os.close(last)
                last = below
            yield last
        finally:
            os.close(last)


def _looked_at(there: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=there, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _said(error: OSError) -> str:
    if isinstance(error, NotADirectoryError) and error.filename:
        return f"[{error.filename}] is a symbolic link, or no folder"
    return error.strerror or str(error)
