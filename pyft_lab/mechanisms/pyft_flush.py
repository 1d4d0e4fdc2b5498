"""pyft with lines on disk: a job that was killed altogether goes on from the last one."""

from __future__ import annotations

from pyft_lab.mechanisms.pyft_movable import Movable

EACH = ("--flush-every", "0")  # each image: cells are too short for the default of 600 s


class Flush(Movable):
    """Images of the job are written to a disk as well."""

    name = "pyft-flush"
    survives = (*Movable.survives, "job-kill")
    options = ("--flush", "{folder}/lines", *EACH)
    resume = ("--resume", "{folder}/lines", *EACH)
    resumes_from = "lines/line-*/manifest"
    disks = ("lines",)
