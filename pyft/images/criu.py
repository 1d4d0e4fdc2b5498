"""Command lines for CRIU, which dumps and restores process trees, and what it needs."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from pyft import config

LEAST = (4, 2, 1)  # older ones cannot dump sockets on Linux 6.16 and newer
INSTALL = (
    f"install CRIU {'.'.join(map(str, LEAST))} or newer, or run tools/get/criu of pyft's sources"
)
_CHECK_S = 60.0  # an emulated machine took more than 10 s
_SYS_ADMIN, _CHECKPOINT_RESTORE = 21, 40  # capabilities
_DUMP, _PRE_DUMP, _RESTORE = "dump.log", "pre-dump.log", "restore.log"
TRACKING = "mem_dirty_track"  # soft-dirty: the kernel marks pages that are written


def find() -> Path | None:
    """Return CRIU's program: PYFT_CRIU, what tools/get/criu has made, or the system's."""
    if asked := config.get_str("PYFT_CRIU"):
        return Path(asked)
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    if (own := data / "pyft" / "criu" / "criu").is_file():
        return own
    found = shutil.which("criu")
    return Path(found) if found else None


def lacks(program: Path | None) -> str:
    """Return why no image can be made, nothing if all is there."""
    if program is None:
        return f"CRIU is missing: {INSTALL}, or set PYFT_CRIU"
    if not _is_privileged():
        return "CRIU needs root, or the capability CAP_CHECKPOINT_RESTORE"
    try:
        version = _said_by(program, "--version")
    except (OSError, subprocess.SubprocessError) as error:
        return f"[{program}] cannot be started: {error}"
    found = re.search(r"Version: (\d+)\.(\d+)(?:\.(\d+))?", version)
    if not found:
        return f"[{program}] does not say its version"
    numbers = tuple(int(number or 0) for number in found.groups())
    if numbers < LEAST:
        least = ".".join(map(str, LEAST))
        return f"[{program}] is CRIU [{'.'.join(map(str, numbers))}], and [{least}] is needed"
    return _kernel_lacks(program)


@functools.cache
def tracks_writes(program: Path) -> bool:
    """Say whether there can be pre-dumps here: kernel and CRIU are asked once."""
    try:
        arguments = [str(program), "check", "--feature", TRACKING]
        done = subprocess.run(arguments, capture_output=True, timeout=_CHECK_S, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def pre_dump_arguments(program: Path, root: int, folder: Path) -> list[str]:
    """Return the command that writes the pages of the tree below `root` while it runs.

    The tree stands only while CRIU notes which pages there are; they are read after that. What is
    written meanwhile the kernel marks, and the dump has it.
    """
    common = _common(program, "pre-dump", folder, _PRE_DUMP)
    return [*common, "--tree", str(root), "--track-mem", "--pre-dump-mode", "read"]


def dump_arguments(
    program: Path, root: int, folder: Path, sockets: Iterable[int], parent: str = ""
) -> list[str]:
    """Return the command that dumps the tree below `root`, which has been stopped and stays so.

    Not --leave-stopped, with which CRIU never takes its rules out of the network's filter again.
    `sockets`: inodes of those that lead out of the tree, and are given back at the restore.
    `parent`: the folder in `folder` with what was dumped before; else all pages are written.
    """
    external = [word for inode in sockets for word in ("--external", f"unix[{inode}]")]
    common = _common(program, "dump", folder, _DUMP)
    before = ["--track-mem", "--prev-images-dir", parent] if parent else []
    return [*common, "--tree", str(root), "--leave-running", *before, *external]


def restore_arguments(program: Path, folder: Path) -> list[str]:
    """Return the command that restores a tree as a child of what starts it."""
    return [
        *_common(program, "restore", folder, _RESTORE),
        "--restore-detached",
        "--restore-sibling",
    ]


def why_failed(folder: Path) -> str:
    """Return the first errors of the log that was written last."""
    logs = [folder / name for name in (_RESTORE, _DUMP, _PRE_DUMP)]
    log = next((path for path in logs if path.exists()), None)
    if log is None:
        return "CRIU has written no log"
    lines = log.read_text(errors="replace").splitlines()
    errors = [line.partition("Error ")[2] for line in lines if "Error (" in line]
    return " / ".join(errors[:3]) or f"[{log}] names no error"


def _common(program: Path, what: str, folder: Path, log: str) -> list[str]:
    return [
        *(str(program), what, "--images-dir", str(folder), "--log-file", log, "-v2"),
        *("--shell-job", "--file-locks", "--ghost-limit", "2G"),
        *("--tcp-established", "--network-lock", "nftables"),
    ]


def _said_by(program: Path, *arguments: str) -> str:
    done = subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, timeout=_CHECK_S, check=False
    )
    return done.stdout + done.stderr


def _kernel_lacks(program: Path) -> str:
    try:
        said = _said_by(program, "check")
    except (OSError, subprocess.SubprocessError) as error:
        return f"[criu check] fails: {error}"
    if "Looks good" in said:
        return ""
    errors = [line.strip() for line in said.splitlines() if "Error" in line]
    return f"the kernel lacks what CRIU needs: {(errors or ['it does not say what'])[0]}"


def _is_privileged() -> bool:
    if os.geteuid() == 0:
        return True
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            held = int(value, 16)
            return bool(held >> _SYS_ADMIN & 1 or held >> _CHECKPOINT_RESTORE & 1)
    return False
