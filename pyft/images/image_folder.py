"""Where CRIU's files of an image lie: in memory where there is room, else in the job's folder.

All stand still while they are written. A file system on a disk writes them out meanwhile, and has
small pages to copy into. The memory is a file system of large pages that is mounted nowhere: it ends
with the launcher and the supervisor, which have its descriptor, however these end.

A pre-dump is made before there is an image that it is of. It lies beside the images until one takes it
into its folder, to which CRIU's link to it leads, so that both can be copied and moved as one.

What an image had in memory is given back only when the next one is about to be made, which gets it. A
virtual machine would give it back to its host meanwhile, and all would stand still for it once more.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from pyft._native import linux
from pyft.images import memory

KEPT = "kept"  # what the last image that was dropped had in memory
PRE_DUMP = "pre-dump"  # the pages that were written while all ran, in the folder of an image
PARENT = "parent"  # CRIU's link to that
SHARE = 3  # so many times what an image needs has to be free: the one before stays until it counts


def in_memory() -> int:
    """Return a descriptor of a new, empty file system in memory, -1 where there can be none."""
    for huge in ({"huge": "within_size"}, {}):
        try:
            return linux.detached_tmpfs({"size": "0", "mode": "0700", **huge})
        except OSError:  # not allowed; or a kernel without large pages
            continue
    return -1


def name_of(fd: int) -> str:
    """Return the name by which other processes of this job find it, empty if there is none."""
    return f"/proc/{os.getpid()}/fd/{fd}" if fd >= 0 else ""


def make(folder: Path, memory_folder: str, needs: int) -> None:
    """Make an empty folder for an image of so many bytes, a link to one in memory if they fit."""
    remove(folder)
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not memory_folder or SHARE * needs > memory.available():
        folder.mkdir(mode=0o700)
        return
    target = Path(memory_folder) / folder.name
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(mode=0o700)
    folder.symlink_to(target)


def make_pre_dump(images: Path, memory_folder: str, needs: int) -> Path:
    """Make an empty folder for a pre-dump of so many bytes, where the image of it will lie."""
    remove_pre_dump(images, memory_folder)
    # The pages are there twice at most: those of the pre-dump, and all of them once more.
    fits = memory_folder and (SHARE + 1) * needs <= memory.available()
    folder = Path(memory_folder) / PRE_DUMP if fits else images / PRE_DUMP
    folder.mkdir(parents=True, mode=0o700)
    return folder


def take_pre_dump(folder: Path, pre_dump: Path) -> bool:
    """Put a pre-dump into the folder of an image; say whether both lie in one file system."""
    try:
        pre_dump.rename(real(folder) / PRE_DUMP)
    except OSError:
        shutil.rmtree(pre_dump, ignore_errors=True)
        return False
    return True


def remove_pre_dump(images: Path, memory_folder: str) -> None:
    """Leave nothing of a pre-dump that no image has taken."""
    for where in (images, *([Path(memory_folder)] if memory_folder else [])):
        shutil.rmtree(where / PRE_DUMP, ignore_errors=True)


def files_of(folder: Path) -> dict[str, Path]:
    """Return the files of an image by their names in it, those of its pre-dump as `pre-dump/NAME`.

    The link to that is none of them: link_to_pre_dump() makes it.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        if path.name == PRE_DUMP:
            found |= {f"{PRE_DUMP}/{one.name}": one for one in sorted(path.iterdir())}
        elif path.name != PARENT:
            found[path.name] = path
    return found


def link_to_pre_dump(folder: Path) -> None:
    """Make the link by which CRIU finds the pages of the pre-dump in the folder of an image."""
    (folder / PARENT).symlink_to(PRE_DUMP)


def real(folder: Path) -> Path:
    """Return where the files of an image lie. Not Path.resolve, which takes the memory for `/`."""
    return Path(os.readlink(folder)) if folder.is_symlink() else folder


def drop(folder: Path, memory_folder: str) -> None:
    """Leave nothing of an image, but its memory until give_back(), if the host has as much left."""
    target = real(folder)
    if not memory_folder or target.parent != Path(memory_folder):
        return remove(folder)
    give_back(memory_folder)
    with contextlib.suppress(OSError):
        if bytes_of(target) < memory.available():
            target.rename(target.with_name(KEPT))
    return remove(folder)


def bytes_of(folder: Path) -> int:
    """Return how much room the files of an image take."""
    found = files_of(folder).values() if folder.exists() else ()
    return sum(path.stat().st_blocks << 9 for path in found)


def give_back(memory_folder: str) -> None:
    """Give back what drop() has kept: an image is about to be made."""
    if memory_folder:
        shutil.rmtree(Path(memory_folder) / KEPT, ignore_errors=True)


def remove(folder: Path) -> None:
    """Leave nothing of an image's folder, wherever its files lie."""
    shutil.rmtree(real(folder), ignore_errors=True)
    with contextlib.suppress(OSError):  # it was no link
        folder.unlink()
