"""What a mechanism is. A new one derives from `Mechanism`, in a file of its own.

The lab imports such a file twice: in the runner, which reads the fields, and in each rank, which
makes an object of it. So torch is imported inside of methods only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

FAULTS = {
    "rank-kill": "the script's process of a rank gets SIGKILL",
    "gpu-lost": "a GPU falls off the bus",
    "sticky": "a kernel fails, and the context with it (CUDA error 700)",
    "ecc": "a GPU reports an uncontained memory error",
    "bitflip": "a bit of what a kernel has written changes, and no error tells of it",
    "torn": "the newest checkpoint file loses its second half, and a rank gets SIGKILL",
    "eio": "each fsync(2) of all ranks fails with EIO, until the job is started anew",
    "disk-full": "the disk of checkpoints has no room left, until the job is started anew",
    "slow-write": "each fsync(2) of all ranks takes a second more, until the job is started anew",
    "memory-lost": "a rank gets SIGKILL, and what the launcher keeps in memory for it is gone",
    "job-kill": "all processes of the job get SIGKILL, launchers as well",
    "disk-lost": "the same, and of the disks that the job has written to the first one is gone",
}

SILENT = ("bitflip",)  # those that no error tells of
STORAGE = ("eio", "disk-full", "slow-write")  # those of the disk with checkpoints
DISK_LOST = "disk-lost"
OF_JOBS = ("job-kill", DISK_LOST)  # of all processes of a job
WITHOUT_GPU = ("rank-kill", "torn", "memory-lost", *STORAGE, *OF_JOBS)  # those that a CPU has
RESCALE = "rescale"  # no fault: all ranks end in order, and others go on; for references only
AWAY, BACK = "away", "back"  # no faults: from when to when a rank is away; for references only

ASKED, READY = ".asked", ".ready"  # files io-N of a rank that waits for a fault of storage to begin
KILLED = ".killed"  # of a job all of which a rank has asked to be killed
BALLAST = "ballast"  # what fills the disk of checkpoints


class Mechanism:
    """A way to survive faults. This one saves nothing, and begins anew.

    `state` is what the script trains with: `model`, `optimizer`, `sampler`, `step`, and
    `pack()` and `unpack(packed)` for all that the rest of the run depends on.
    """

    name = "none"
    substrates: tuple[str, ...] = ("cpu", "soft")
    # By default all of which something tells. Others are shown as not claimed, and not run.
    survives: tuple[str, ...] = tuple(kind for kind in FAULTS if kind not in SILENT)
    most_faults = 0  # that a run can have; 0: as many as there are ranks
    # On soft GPUs; {folder} and {interval} are those of the cell.
    options: tuple[str, ...] = ("--direct",)  # of `pyft run`
    environment: Mapping[str, str] = {}
    resume: tuple[str, ...] = ()  # words for `pyft run` when the job was lost: it goes on with it
    resumes_from = ""  # a pattern in the cell's folder: if there is none, the job begins anew
    told_before = False  # what a script was told before a silent fault was seen is not taken back
    begins_anew = False  # a job that gives up is begun again; one that is killed always is
    relaunches = True  # all ranks are started anew when one has failed
    one_by_one = False  # or it alone: the others go on, and it finds them by itself
    service: tuple[str, ...] = ()  # python's words for a process beside the ranks
    needs: tuple[str, ...] = ()  # packages that the lab does not bring along
    resizes = False  # and may be more or less than before
    writes = False  # files, on the disk of checkpoints
    disks: tuple[str, ...] = ("checkpoints",)  # folders in that of the cell, each a disk of its own
    least_ranks = 1
    places = 0  # in the launcher's memory, of each rank: they outlive it

    def __init__(self, folder: Path, rank: int, interval: int) -> None:
        self.folder, self.rank, self.interval = folder, rank, interval
        self.present: list[int] | None = None  # ranks that share this step, if they can differ

    @classmethod
    def lacks(cls) -> str:
        """Return why it cannot be run on this machine; its cells say so, and are not run."""
        return ""

    def world_size(self) -> int:
        """Return how many ranks share out a batch."""
        import torch.distributed as dist

        return dist.get_world_size()

    def restore(self, state: Any) -> None:
        """Bring the state to the last one that was saved, if there is one."""

    def begin_step(self, state: Any) -> None:
        """Agree on which are there; a rank that was away gets the state of the others."""

    def average(self, gradients: Sequence[Any], halfway: Callable[[], None]) -> None:
        """Average gradients over the ranks; `halfway` is called once amid it.

        One by one: a new process has no buckets of another order.
        """
        import torch.distributed as dist

        for number, gradient in enumerate(gradients):
            if number == len(gradients) // 2:
                halfway()
            dist.all_reduce(gradient)
            gradient /= dist.get_world_size()

    def commit(self, state: Any) -> bool:
        """Return whether the gradients are good; if not, the state is as before the step."""
        return True

    def after_step(self, state: Any) -> None:
        """Save, if it is time."""
        if state.step % self.interval == 0:
            self.save(state)

    def save(self, state: Any) -> None:
        """Save the state, or begin to."""

    def close(self, state: Any) -> None:
        """Finish what is under way; the training has ended."""
