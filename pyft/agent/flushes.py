"""Writes images that count to disk, in a thread of its own: nothing of the job waits for it.

One at a time, and each at least --flush-every seconds after the last one was begun. An image that
counts while one is written is passed over. What is under way when this agent dies is begun anew by
the next one, with its next image.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyft.agent.job.options import JobOptions
from pyft.agent.process import messages
from pyft.flush import manifest, reader
from pyft.flush.writer import Stopped, Writer
from pyft.images import image_folder, travelling
from pyft.images.appended import Log
from pyft.images.contents import Contents

BEHIND = 10  # the priority: training goes first; at 19 other work on the host would starve it
LINKS = "flush-"
END_S = 5.0  # for the thread to remove what it has begun


class Flushes:
    """All flushes of one agent. `figures`: of those that are done."""

    def __init__(self, options: JobOptions, about: dict[str, Any]) -> None:
        """`about`: what is needed to go on with the job, besides images."""
        self._folders, self._every = [Path(f) for f in options.flush], options.flush_every
        self._parity = options.parity
        self._about = about
        self._writer: Writer | None = None
        self._thread: threading.Thread | None = None
        self._stop = threading.Event()
        self._next = 0.0
        self._failed = 0  # in a row
        self._left_out: set[Path] = set()  # folders that have nothing of the last one
        self._is_only_here = False  # what the last one is of
        self._done: dict[str, Any] = {}  # what the thread has to say
        self.figures: list[dict[str, float]] = []

    def offer(self, record: dict[str, Any], memory: dict[int, list[int]]) -> None:
        """Take an image that counts now, if it is time for one. The descriptors stay the caller's."""
        now = time.monotonic()
        self.look()
        if self._thread or now < self._next:
            return
        self._next = now + self._every
        fds: dict[int, list[int]] = {}
        try:
            links = _links_to(Path(record["folder"]))
            fds = {id: [os.dup(fd) for fd in of_client] for id, of_client in memory.items()}
        except OSError as error:
            self._say_failed(record["step"], error)
            return
        self._done = {}
        arguments = (record, links, fds)
        self._thread = threading.Thread(target=self._run, args=arguments, daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Say what has come of the last one."""
        if not self._thread or self._thread.is_alive():
            return
        self._thread, done = None, self._done
        if "error" in done:
            self._say_failed(done["step"], done["error"])
        elif "bytes" in done:
            self._say_done(done["step"], done.pop("only_here"))
            self._failed = 0
            self.figures.append(done)

    def end(self) -> None:
        """The job ends: what is half written is removed."""
        self._stop.set()
        if self._thread:
            self._thread.join(END_S)
            self.look()

    def _say_done(self, step: int, only_here: str) -> None:
        """Say that a line is on disk, if that is news, and which folders have nothing of it.

        `only_here`: why it can be resumed on this host only, empty if elsewhere too.
        """
        assert self._writer
        failed, is_new = self._writer.failed, bool(only_here) != self._is_only_here
        self._is_only_here = bool(only_here)
        if self._failed or not self.figures or is_new or failed.keys() != self._left_out:
            where = ", ".join(str(f) for f in self._folders if f not in failed)
            left = self._parity - len(failed)
            may = f"; [{left}] of them may be lost" if self._parity else ""
            whys = [f"; not in [{folder}]: {error.strerror}" for folder, error in failed.items()]
            whys += [f"; only this host can resume it: {only_here}"] if only_here else []
            messages.say(f"--flush: step [{step}] is on disk in [{where}]{may}{''.join(whys)}")
        self._left_out = set(failed)

    def _say_failed(self, step: int, error: Exception) -> None:
        self._failed += 1
        if self._failed > 1:
            return
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        good = self._writer.good[::-1] if self._writer else manifest.lines_in(self._folders)
        where = ", ".join(map(str, self._folders))
        last = f"line [{good[0]}] is still there" if good else "there is none before it"
        messages.say(
            f"--flush: step [{step}] is not on disk in [{where}]: {why}; {last}, and pyft tries again"
        )

    # ---- the thread ---------------------------------------------------------------------------

    def _run(self, record: dict[str, Any], links: Path, fds: dict[int, list[int]]) -> None:
        begun, done = time.monotonic(), dict[str, Any](step=record["step"])
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), BEHIND)
            noted = [Log(**note) for note in record.get("logs", ())]
            logs, done["only_here"] = travelling.of_own_disks(noted)
            contents = Contents.of(links, fds).with_files(travelling.sizes(logs))
            image = self._about | {"record": record}
            about = {"step": record["step"], "contents": contents.note(), "image": image}
            pieces = contents.pieces(links, fds, travelling.paths(logs))
            stream = self._until_stopped(pieces)
            if self._writer is None:
                self._writer = Writer(self._folders, self._parity, reader.whole(self._folders))
            done["bytes"] = self._writer.write(record["number"], about, stream)
            done["seconds"] = time.monotonic() - begun
        except Stopped:
            pass
        except Exception as error:  # a thread that ends without a word would be a flush for ever
            done["error"] = error
        finally:
            for fd in (fd for of_client in fds.values() for fd in of_client):
                os.close(fd)
            shutil.rmtree(links, ignore_errors=True)
            self._done = done

    def _until_stopped(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            if self._stop.is_set():
                raise Stopped
            yield piece


def _links_to(folder: Path) -> Path:
    """Return a folder with other names of CRIU's files, so that they stay when the image goes."""
    folder = image_folder.real(folder)
    links = folder.with_name(f"{LINKS}{folder.name}")
    for old in folder.parent.glob(f"{LINKS}*"):  # of an agent that has died
        shutil.rmtree(old, ignore_errors=True)
    try:
        links.mkdir(mode=0o700)
        for name, path in image_folder.files_of(folder).items():
            if path.suffix != ".log":
                (links / name).parent.mkdir(mode=0o700, exist_ok=True)
                os.link(path, links / name)
    except OSError:
        with contextlib.suppress(OSError):
            shutil.rmtree(links)
        raise
    return links
