"""What a job's meta.json says: kept by the agent, written down when it changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyft.agent.job import job_folder
from pyft.agent.job.options import JobOptions
from pyft.agent.process import messages
from pyft.agent.process.loop import Loop

SOON_S = 0.05  # several clients that come or go in this time are written down together


class JobMeta:
    """`values` are kept for the next agent; `live` tells what is seen anew each time."""

    def __init__(self, options: JobOptions, loop: Loop, live: Callable[[], dict[str, Any]]) -> None:
        self._folder, self._loop, self._live = options.log_dir, loop, live
        self._due = False
        self.values: dict[str, Any] = {
            "job": options.job,
            "command": list(options.command),
            "devices": options.devices,
            "gpus": options.gpus,
            "spares": options.spares,
            "protect": options.protect,
            "direct": options.direct,
            "started": time.time(),
            "state": "running",
            "channels": [],
        }

    def forget_clients(self, ids: set[int]) -> None:
        """Do without clients that have ended: they live again, from an image."""
        ended = self.values["channels"]
        self.values["channels"] = [entry for entry in ended if entry["id"] not in ids]

    def write_soon(self) -> None:
        """Not at once: replacing a file takes up to 8 ms, for which all other clients would wait."""
        if not self._due:
            self._due = True
            self._loop.after(SOON_S, self.write)

    def write(self) -> None:
        """Write it down now; what cannot be written is told."""
        self._due = False
        try:
            job_folder.write_meta(self._folder, self.values | self._live())
        except OSError as error:
            messages.say(f"[{self._folder}] cannot be written: {error.strerror}")
