"""Faults that variables of the job's environment ask for, and which of them have happened.

A file of the job's folder has both, since what has a fault is mostly dead then: the first agent
writes down what was asked for, and each process what has happened in it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path

from pyft.agent.process import fault

# Each variable, and the one by which its reader learns of the file.
NOTES = {
    "PYFT_FAULT": fault.NOTES,
    "SOFTGPU_FAULT": "SOFTGPU_FAULT_NOTES",
    "FLEXCCL_FAULT": "FLEXCCL_FAULT_NOTES",
}
_OF_AUDITOR = "PYFT_AUDIT_FAULT"  # its reader takes it for SOFTGPU_FAULT
_NO_FAULT = ("resume", "clear")
_WHY = "no process has come to it; what each has counted stands above on stderr"


def asked_for(environment: Mapping[str, str]) -> list[str]:
    """Return what an environment asks for, as `NAME=fault`, in the words of those that note it."""
    found = []
    for name in (*NOTES, _OF_AUDITOR):
        text = re.sub("#.*", "", environment.get(name, ""))  # none but the soft GPU has comments
        reader = "SOFTGPU_FAULT" if name == _OF_AUDITOR else name
        faults = [one.strip() for one in re.split(r"[;\n]", text)]
        found += [f"{reader}={one}" for one in faults if one and not one.startswith(_NO_FAULT)]
    return found


def begin(folder: Path, job: str, environment: MutableMapping[str, str]) -> None:
    """Let what is started with this environment, and this process, note what happens."""
    asked, path = asked_for(environment), _path(folder, job)
    if asked and not path.exists():
        with suppress(OSError):  # a folder that cannot be used is refused soon
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_text("".join(f"asked {one}\n" for one in asked))
    if path.exists():
        environment.update(dict.fromkeys(NOTES.values(), str(path.absolute())))


def missed(folder: Path, job: str) -> list[dict[str, str]]:
    """Return what was asked for and has not happened."""
    try:
        lines = _path(folder, job).read_text(errors="replace").splitlines()
    except OSError:
        return []
    asked = [one.removeprefix("asked ") for one in lines if one.startswith("asked ")]
    return [{"fault": one, "why": _WHY} for one in asked if f"happened {one}" not in lines]


def _path(folder: Path, job: str) -> Path:
    return folder / f"faults-{job}"
