"""pyft with images of processes: a killed process of the script goes back to one, with all others.

Before the first image the death of the script's process ends the job, which is then begun anew.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

from pyft_lab.mechanisms.pyft import OF_A_GPU, Snapshot

NEED = "images of processes"  # as `pyft doctor` calls it
DOCTOR_S = 300.0


@functools.cache
def why_no_images() -> str:
    """Return what `pyft doctor` says is missing for images, nothing if it is all there."""
    command = [str(Path(sys.executable).with_name("pyft")), "doctor", "--json"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=DOCTOR_S).stdout
        found = {finding["need"]: finding for finding in json.loads(said)}[NEED]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired) as error:
        return f"cannot learn whether images can be made: {error!r}"
    return "" if found["status"] == "ok" else f"no images of processes: {found['text']}"


class Movable(Snapshot):
    """A killed process of the script is restored from an image, and all go back to it."""

    name = "pyft-movable"
    survives = (*OF_A_GPU, "rank-kill")
    options = ("--movable",)
    environment = {"PYFT_IMAGE_EVERY": "{interval}"}
    begins_anew = True

    @classmethod
    def lacks(cls) -> str:
        return why_no_images()
