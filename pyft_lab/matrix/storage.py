"""Faults of storage: strace lets calls of running ranks fail or take long, and a small disk fills up.

A rank that comes to such a fault asks the launcher for it and waits, so it begins at its place. It
hits all ranks of the attempt, as they share the disk, and ends when the job is started anew.
`io-N.trace` has the calls that it met.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from pyft_lab.api import ASKED, BALLAST, READY, STORAGE
from pyft_lab.errors import LabError

SYNCS = "fsync,fdatasync"
RENAMES = "rename,renameat,renameat2"  # what gives a checkpoint its name
INJECTED = {"eio": f"{SYNCS}:error=EIO", "slow-write": f"{SYNCS}:delay_enter=1000000"}
SMALL_DISK = b"size=16m"
SMALL = ["unshare", "--user", "--map-root-user", "--mount"]  # a process that may mount its disk
ATTACH_S = 20.0
POLL_S = 0.02


def check_tools(kinds: set[str]) -> None:
    """Raise if a program is missing that a fault needs, or a right."""
    if kinds & {*INJECTED} and not shutil.which("strace"):
        named = ", ".join(sorted(kinds & {*INJECTED}))
        raise LabError(f"fault [{named}] needs the program strace: install it, or leave it out")
    if "disk-full" in kinds and not may_mount():
        raise LabError(
            "fault [disk-full] needs a disk of its own, which [unshare] may not make here: "
            "allow user namespaces, or leave it out"
        )


def may_mount() -> bool:
    """Return whether a process of its own namespaces may be made."""
    try:
        return subprocess.run([*SMALL, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class Tracer:
    """Begins the faults that ranks ask for; of a launcher."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.begun: list[subprocess.Popen[bytes]] = []

    def poll(self, pids: Sequence[int]) -> None:
        """Begin what has been asked for, for all ranks of this attempt."""
        for asked in self.folder.glob(f"io-*{ASKED}"):
            ready = asked.with_suffix(READY)
            kind = asked.read_text()
            if ready.exists() or kind not in INJECTED:
                continue
            self.attach(asked, kind, pids)
            ready.touch()

    def attach(self, asked: Path, kind: str, pids: Sequence[int]) -> None:
        """Return when strace holds all ranks, or when it could not in time."""
        told = asked.with_suffix(".strace")
        words = ["strace", "-f", "-ttt", "-y", "-o", str(asked.with_suffix(".trace"))]
        words += ["-e", f"trace={SYNCS},{RENAMES}", "-e", f"inject={INJECTED[kind]}"]
        with told.open("wb") as output:
            self.begun.append(
                subprocess.Popen(
                    [*words, *(w for pid in pids for w in ("-p", str(pid)))], stderr=output
                )
            )
        last = time.monotonic() + ATTACH_S
        while told.read_text().count(" attached") < len(pids) and time.monotonic() < last:
            if self.begun[-1].poll() is not None:
                return
            time.sleep(POLL_S)

    def close(self) -> None:
        """End what has begun; ranks that still run go on without it."""
        for strace in self.begun:
            strace.terminate()
        for strace in self.begun:
            strace.wait()


class SmallDisk:
    """A small disk for checkpoints, in a mount namespace of this process and its ranks."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.under = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"lab", os.fsencode(folder), b"tmpfs", 0, SMALL_DISK) != 0:
            raise OSError(ctypes.get_errno(), "cannot mount a small disk")

    def make_room(self) -> None:
        (self.folder / BALLAST).unlink(missing_ok=True)

    def close(self) -> None:
        """Leave the checkpoints where others can see them."""
        self.make_room()
        shutil.copytree(self.folder, f"/proc/self/fd/{self.under}", dirs_exist_ok=True)


def has_small_disk(kinds: set[str]) -> bool:
    return bool(kinds & {*STORAGE} - {*INJECTED})
