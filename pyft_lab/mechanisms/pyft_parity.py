"""pyft with lines on three disks, of which one is parity: each of them may be lost."""

from __future__ import annotations

from pyft_lab.mechanisms.pyft_flush import EACH, Flush

DISKS = ("lines-0", "lines-1", "lines-2")


class Parity(Flush):
    """Each disk has a part of the job's lines; two of three are enough."""

    name = "pyft-parity"
    survives = (*Flush.survives, "disk-lost")
    options = (*(f"--flush={{folder}}/{disk}" for disk in DISKS), "--parity", "1", *EACH)
    resume = (*(f"--resume={{folder}}/{disk}" for disk in DISKS), *EACH)
    resumes_from = "lines-1/line-*/manifest"  # the first disk may be a new one
    disks = DISKS
