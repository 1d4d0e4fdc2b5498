"""What gloo's own re-initialisation costs: a new process group over a store that is there.

The old group is let go of outside the measured time: closing waits for ticks of 10 ms, one
connection after the other, which says nothing about making a group.
"""

from __future__ import annotations

import os

import ccl_libraries
from ccl_pool import Meter, measure


def body(meter: Meter, repeats: int, lazy: bool) -> None:
    if lazy:
        os.environ["TORCH_GLOO_LAZY_INIT"] = "1"
    gloo = ccl_libraries.Gloo()
    gloo.join(meter)
    for repeat in range(repeats):
        meter.together()  # all have connected: leaving earlier would fail them
        gloo.leave()
        name = f"group {repeat}"
        meter.block("re-init", lambda: gloo.remake(meter.rank, meter.size, name))  # noqa: B023
    meter.together()
    gloo.leave()


def reinit_ms(processes: int, repeats: int, lazy: bool) -> list[float]:
    """Return samples of milliseconds, from the release of a barrier to the last rank's return."""
    seconds = measure(processes, lambda meter: body(meter, repeats, lazy))
    return [1000 * sample for sample in seconds["re-init"]]
