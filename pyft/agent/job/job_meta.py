"""What a job's meta.json says: kept by the agent, written down when it changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from pyft.agent.job import job_folder, own_folder
from pyft.agent.job.ended_clients import EndedClients
from pyft.agent.job.options import JobOptions
from pyft.agent.job.supervisors import AGAIN_S
from pyft.agent.process import messages
from pyft.agent.process.loop import Loop

SOON_S = 0.05  # several clients that come or go in this time are written down together
SHARE = 0.05  # of the agent's time, for that: what many clients have left takes long to write


class JobMeta:
    """`values` and `ended` are kept for the next agent; `live` tells what is seen anew each time."""

    def __init__(
        self,
        options: JobOptions,
        loop: Loop,
        live: Callable[[], dict[str, Any]],
        ended: EndedClients,
    ) -> None:
        self._folder, self._loop, self._live, self.ended = options.log_dir, loop, live, ended
        self._due = False
        self._took_s = 0.0
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
        }

    def write_soon(self) -> None:
        """Not at once: replacing a file takes up to 8 ms, for which all other clients would wait."""
        if not self._due:
            self._due = True
            self._loop.after(max(SOON_S, self._took_s / SHARE), self.write)

    def write_again(self) -> None:
        """Write it down now and every hour: jobs elsewhere see by that that this one lives."""
        self.write()
        own_folder.stay_listed(self.values["job"], self._folder)
        self._loop.after(AGAIN_S, self.write_again)

    def write(self) -> None:
        """Write it down now; what cannot be written is told."""
        self._due, began = False, time.monotonic()
        try:
            meta = self.values | self._live() | {"written": time.time()}
            job_folder.write_meta(self._folder, meta, channels=self.ended.text())
        except OSError as error:
            messages.say(f"[{self._folder}] cannot be written: {error.strerror}")
        self._took_s = time.monotonic() - began
