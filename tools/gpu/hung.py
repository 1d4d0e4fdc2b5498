"""Where the processes of a program that does not end stand: what the kernel and a debugger say."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from pathlib import Path

PROC = Path("/proc")
OF_THREAD = ("comm", "wchan", "syscall", "stack")
DEBUGGERS = ("gdb", "cuda-gdb")
DEBUGGER_S, DEBUGGERS_S = 5.0, 6.0  # for one process, and for all of them


def record(pid: int, folder: Path) -> list[int]:
    """Write a file for each process that belongs to this one; return which these are."""
    folder.mkdir(parents=True, exist_ok=True)
    pids = related(pid)
    for one in pids:
        (folder / f"{one}.txt").write_text(standing(one))
    ask_debugger(pids, folder)
    return pids


def related(pid: int) -> list[int]:
    """Return the processes of its group and its session, and those that they have started."""
    parents, found = {}, {pid}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            parents[int(entry.name)] = int(words[1])
            if pid in (int(words[2]), int(words[3])):
                found.add(int(entry.name))
    grown = True
    while grown:
        grown = {one for one, parent in parents.items() if parent in found} - found
        found |= grown
    return sorted(one for one in found if one in parents)


def standing(pid: int) -> str:
    """Return what /proc says of a process and of each of its threads."""
    folder = PROC / str(pid)
    texts = [f"== {pid}: {read(folder / 'cmdline').replace(chr(0), ' ')}", read(folder / "status")]
    threads = []
    with contextlib.suppress(OSError):
        threads = sorted((folder / "task").iterdir(), key=lambda path: int(path.name))
    for thread in threads:
        texts.append(f"== thread {thread.name}")
        texts += [f"{name}: {read(thread / name).strip()}" for name in OF_THREAD]
    return "\n".join(texts) + "\n"


def read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError as error:
        return f"[{error.strerror}]"


def ask_debugger(pids: list[int], folder: Path) -> None:
    """Write the stacks of all threads, of servers first; there is not always time for all."""
    debugger = next((found for name in DEBUGGERS if (found := shutil.which(name))), None)
    end = time.monotonic() + DEBUGGERS_S
    servers_first = sorted(pids, key=lambda pid: "pyft-server" not in read(PROC / f"{pid}/cmdline"))
    for pid in servers_first if debugger else ():
        left = min(DEBUGGER_S, end - time.monotonic())
        if left <= 0 or pid == os.getpid():
            continue
        command = [debugger, "-p", str(pid), "-batch", "-ex", "thread apply all bt 40"]
        with (folder / f"{pid}.stacks.txt").open("w") as file:
            try:
                subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=subprocess.STDOUT,
                    timeout=left,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                file.write(f"\n[{error}]\n")
