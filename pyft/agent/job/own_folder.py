"""A job takes its folder: no other one has it meanwhile, and what is looked for among jobs finds it.

Two jobs in one folder would write the same meta.json, and an order for one of them reach the other.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pyft.agent.job import job_folder
from pyft.errors import PyftError, UsageError

LOCK = "lock"
WAIT_S = 10.0  # of a job whose launcher was killed, all has gone by then
_PAUSE_S = 0.1
_TRIES = 1000  # jobs of one second and of equal process numbers


def take(job: str, named: Path | None) -> tuple[str, Path]:
    """Return name and folder of a job that begins: `named`, or a new one among the others.

    Raise UsageError if the folder cannot be used, or is in use.
    """
    folder = job_folder.create(named.resolve()) if named else _new(job)
    _lock(folder)
    for old in (job_folder.META, job_folder.TIMELINE):  # of a job that was there before
        with suppress(OSError):
            (folder / old).unlink(missing_ok=True)
    if not named:
        return folder.name, folder
    return _link_anew(folder, job), folder


def stay_listed(job: str, folder: Path) -> None:
    """Have a folder that was named among those of jobs still, and its link as one that is used."""
    if _is_among_jobs(folder):
        return
    links = _links_to(folder)
    for link in links:
        with suppress(OSError):
            os.utime(link, follow_symlinks=False)
    if not links:
        _link(folder, job)


def _new(job: str) -> Path:
    """Make a folder that no other job has: containers number processes alike."""
    state = job_folder.state_folder().resolve()
    for name in _names(job):
        with suppress(FileExistsError):
            return job_folder.create(state / name, is_new=True)
    raise UsageError(f"[{state}] has too many jobs of this second: name a folder by --log-dir")


def _lock(folder: Path) -> None:
    """Keep other jobs out as long as this process and the supervisor live: both have it."""
    try:
        fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError:
        return
    until = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                os.close(fd)
                raise UsageError(
                    f"the folder of the job [{folder}] is in use by a job that runs: name another "
                    "by --log-dir"
                ) from None
            time.sleep(_PAUSE_S)
        except OSError:  # a file system without locks: no job can be kept out
            os.close(fd)
            return


def _link_anew(folder: Path, job: str) -> str:
    """Have the folder in the list once, by the name of this job; return the name."""
    if _is_among_jobs(folder):
        return job
    for link in _links_to(folder):  # of jobs that were there before
        with suppress(OSError):
            link.unlink()
    return _link(folder, job)


def _link(folder: Path, job: str) -> str:
    with suppress(OSError, PyftError):  # the job can do without
        state = job_folder.create(job_folder.state_folder())
        for name in _names(job):
            with suppress(FileExistsError):
                os.symlink(folder, state / name)
                return name
    return job


def _links_to(folder: Path) -> list[Path]:
    with suppress(OSError, PyftError):
        links = job_folder.links(job_folder.state_folder())
        return [link for link in links if os.readlink(link) == str(folder)]
    return []


def _is_among_jobs(folder: Path) -> bool:
    with suppress(OSError, PyftError):
        state = job_folder.state_folder().resolve()
        return folder.parent == state and bool(job_folder.NAME.fullmatch(folder.name))
    return False


def _names(job: str) -> Iterator[str]:
    """Yield the name of a job, and others for the case that it is taken."""
    if parts := job_folder.NAME.fullmatch(job):
        first, number, rest = parts.groups()
        for more in range(_TRIES):
            yield f"{first}{int(number) + more}{rest or ''}"
