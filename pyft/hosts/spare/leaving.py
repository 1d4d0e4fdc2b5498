"""What becomes of `pyft run` on a host whose place has gone to another one: it is a spare host.

It has the image of that place and no other one. It ends when all have come back; if the other host is
lost before that, it goes on with its place itself.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from pyft.agent.job.options import JobOptions
from pyft.agent.process import messages
from pyft.agent.supervisor.launcher import Launcher
from pyft.hosts.place.mirror import Stored
from pyft.hosts.spare.spare import Spare
from pyft.hosts.wire.link import token


def run(launcher: Launcher) -> int:
    """Run a job, and stand by if its place leaves this host; return the exit code."""
    code = launcher.run()
    if not launcher.left:
        return code
    return _stand_by(launcher.options, launcher.left, launcher.left_memory)


def _stand_by(options: JobOptions, left: dict[str, Any], memory: dict[int, list[int]]) -> int:
    messages.say(
        f"{left['why']}: place [{options.place}] has ended here, its image stays meanwhile"
    )
    record, folder = left["record"], options.log_dir
    named = (left["options"], left["clients_name"])
    image = Stored(options.place, record["number"], Path(record["folder"]), record, *named, memory)
    try:
        spare = Spare(options.head, token(), options.host, options.address, folder, image)
        return spare.run()
    finally:
        shutil.rmtree(folder / "images", ignore_errors=True)
