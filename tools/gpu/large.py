"""Snapshots and a restore of tens of gigabytes: how fast they are copied."""

from __future__ import annotations

from pathlib import Path

from checklist import Check, FailError, SkipError
from jobs import snapshotted
from machine import Machine
from measurements import free_mib
from recoveries import faults_of, phases, recovered, run_job

GIB = 1 << 30
LEAST_GIB, MOST_GIB = 16, 40
STEPS = 4  # the first three snapshots are those of new memory; with the fourth K is chosen
# If the copies are as slow as this, there is still time for all of them and the restore.
SLOWEST = 1.25 * GIB
SOFT_CHUNKS, SOFT_MIB = 4, 16


def available_bytes(proc: Path = Path("/proc/meminfo")) -> int:
    """Return what the kernel can give to programs, of this container where it is less."""
    found = next(line for line in proc.read_text().splitlines() if line.startswith("MemAvailable"))
    kernel = int(found.split()[1]) << 10
    limit = Path("/sys/fs/cgroup/memory.max")
    used = Path("/sys/fs/cgroup/memory.current")
    if not limit.exists() or (text := limit.read_text().strip()) == "max":
        return kernel
    return min(kernel, int(text) - int(used.read_text()))


def gibibytes(gpu_free: int, available: int, seconds: float) -> int:
    """Return how much is filled. A store holds two snapshots while it makes one."""
    allowed = min(gpu_free // 2, available // 3, int(seconds * SLOWEST / (STEPS + 2)))
    if allowed < LEAST_GIB * GIB:
        raise SkipError(
            f"[{allowed / GIB:.1f} GiB] instead of [{LEAST_GIB} GiB] can be had: "
            f"[{gpu_free / GIB:.0f} GiB] are free on the GPU, [{available / GIB:.0f} GiB] on the "
            f"host, [{seconds:.0f} s] are left"
        )
    return min(MOST_GIB, allowed // GIB)


def large(machine: Machine) -> list[str]:
    """Change all of it in each step, kill the server after the last one; the program looks at it."""
    chunks, mib = SOFT_CHUNKS, SOFT_MIB
    if machine.gpu:
        free = int(free_mib(machine)) << 20
        chunks, mib = gibibytes(free, available_bytes(), machine.left()), 1024
    program = machine.python("fill.py", str(chunks), str(mib), str(STEPS))
    inject = f"server-kill,rank=0,step={STEPS},call=2"
    out, report = run_job(machine, program, 1, "--inject", inject)
    fault = recovered(faults_of(report))
    if len(out) != STEPS + 1 or not out[-1].endswith(f"wrong=0 of {chunks}"):
        raise FailError("what comes back is not what was there", out)
    milliseconds = max(fault["phases_ms"]["restore"], 0.001)
    rate = fault["restored_bytes"] / milliseconds / 1e6
    restored = f"{fault['restored_bytes'] / 1e9:.2f} GB restored at {rate:.2f} GB/s"
    return [f"{chunks * mib} MiB filled", restored, phases(fault)] + snapshotted(
        report["channels"][0]["store"]
    )


CHECKS = (Check("snapshot-large", 50, 110, large, ("build", "build-measurements")),)
