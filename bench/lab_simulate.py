"""Time of the lab's simulator: 100,000 GPUs, 90 days, 1,000 trials, 5 mechanisms; compile included.

Prints wall and CPU seconds. On a busy machine only the latter say something; divide by its cores.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time

BEGIN = time.perf_counter()
# A folder of its own: what an earlier run compiled does not count.
os.environ["NUMBA_CACHE_DIR"] = tempfile.mkdtemp(prefix="lab-numba-")

import numpy as np  # noqa: E402

from pyft_lab.sim import constants, simulate  # noqa: E402
from pyft_lab.sim.cluster import Cluster  # noqa: E402

TRIALS, HOURS = 1000, 90 * 24.0
MECHANISMS = ("restart", "async", "deadpool", "reft", "pyft")


def main() -> None:
    rate, _ = constants.rate_of("ft-hsdp")
    cluster, known = Cluster(100_000, rate), constants.mechanisms()
    rows = {
        name: np.tile(
            np.array(simulate.configure(cluster, known[name], known["restart"], 20.0).numbers()),
            (TRIALS, 1),
        )
        for name in MECHANISMS
    }
    found = simulate.run(cluster, rows, HOURS, seed=1)
    wall = time.perf_counter() - BEGIN
    used = resource.getrusage(resource.RUSAGE_SELF)
    for name, out in found.items():
        print(f"{name:10s} goodput {out[:, 0].mean() / HOURS:.4f}")
    cpu = used.ru_utime + used.ru_stime
    print(
        f"{wall:.1f} s wall, {cpu:.1f} s CPU on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
        f"{used.ru_maxrss / 1024:.0f} MB; faults simulated: {len(rows) * found['restart'][:, 9].sum():.0f}"
    )


if __name__ == "__main__":
    main()
