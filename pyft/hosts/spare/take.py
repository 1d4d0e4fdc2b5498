"""Goes on with a place on this host: `take.py FD`, started by `pyft host` (spare.py).

FD is a note: options, the name under which clients call, the image's clocks, and what the first agent
finds, as if the one before it had died while it put the place back to its image. All descriptors are
this process's.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

if not __package__:
    sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from pyft import _native
from pyft.agent.job import job_folder
from pyft.agent.job.gpus import on_this_host
from pyft.agent.job.options import JobOptions
from pyft.agent.process import messages
from pyft.agent.process.notes import make_note, read_note
from pyft.agent.supervisor.launcher import Launcher
from pyft.errors import PyftError
from pyft.hosts.spare import leaving
from pyft.images import clocks


def main(fd: int) -> int:
    """Return the exit code of the place's command."""
    note = read_note(fd)
    wanted = {field.name for field in dataclasses.fields(JobOptions)}
    clocks.go_on(note["clocks"])
    values = {name: value for name, value in note["options"].items() if name in wanted}
    values |= {"command": tuple(values["command"]), "log_dir": Path(values["log_dir"])}
    values |= {"real_gpus": on_this_host(values.get("real_gpus", ()))}
    options = JobOptions(**values, native_dir=_native.native_dir(), direct=False, movable=True)
    options.check_native_files()
    job_folder.create(options.log_dir)
    for _, fds in note["kept"].values():
        for one in fds:
            os.set_inheritable(one, False)
    kept = {name: [make_note(name, what), *fds] for name, (what, fds) in note["kept"].items()}
    return leaving.run(Launcher(options, note["clients_name"], kept))


if __name__ == "__main__":
    try:
        code = main(int(sys.argv[1]))
    except PyftError as error:
        messages.say(str(error))
        code = error.exit_code
    messages.flush_and_exit(code)
