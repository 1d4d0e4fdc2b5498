"""pyft's own mechanisms. The script does nothing for them: it is the one of `none`."""

from __future__ import annotations

from pyft_lab.api import Mechanism

OF_A_GPU = ("gpu-lost", "sticky", "ecc")  # the script's process is not replaced


class Snapshot(Mechanism):
    """The rank whose GPU fails goes on from a snapshot in host memory, and replays."""

    name = "pyft-snapshot"
    substrates = ("soft",)
    survives = OF_A_GPU
    options = ("--protect", "snapshot")
    relaunches = False


class Jit(Snapshot):
    """Contents that other ranks have stay in their GPUs only."""

    name = "pyft-jit"
    options = ("--protect", "jit")


class All(Snapshot):
    """All ranks go back and replay, as stock NCCL needs it."""

    name = "pyft-all"
    environment = {"PYFT_REPLAY": "all"}
    most_faults = 1  # all ranks have new servers then, which hear of no other fault
