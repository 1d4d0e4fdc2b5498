"""The engine: one plain function that walks the faults of a trial, compiled by numba.

It counts in faults, not in steps or GPUs. Its cost does not depend on the size of the cluster.
tests/unit/lab/reference_simpy.py says the same as processes of SimPy, and agrees to 1e-12.

A fault stops the job, which goes back to its last durable state. A fault during a recovery begins
it anew. Nodes that are taken go to repair at once; the job waits until enough spares are there.
In memory, a state is lost if a node and all that have its copies are hurt before they are whole
again. Then, and after faults that take the program itself, the persistent checkpoint is loaded.
"""

from __future__ import annotations

import heapq

import numba
import numpy as np

from pyft_lab.sim.cluster import JOB, NODE, RACK, SOFT

# Columns of a result: hours but for the last three. The first six sum to the horizon.
USEFUL, LOST, OVERHEAD, STALL, RECOVERING, WAITING, OUTAGE, STATE_LOSSES, OUT, FAULTS = range(10)
COLUMNS = (
    "useful", "lost", "overhead", "stall", "recovering", "waiting",
    "longest_outage", "state_losses", "most_out", "faults",
)  # fmt: skip


@numba.njit(nogil=True, cache=True)
def is_hurt(node, bases, sizes, count):  # noqa: ANN001, ANN201 - numba infers them
    """Say whether a node is in one of the ranges of nodes."""
    for i in range(count):  # noqa: SIM110 - numba compiles no any()
        if bases[i] <= node < bases[i] + sizes[i]:
            return True
    return False


@numba.njit(nogil=True, cache=True)
def is_lost(bases, sizes, count, copies, distance, nodes):  # noqa: ANN001, ANN201
    """Say whether the newest range and those before it have a node with all of its copies."""
    for node in range(bases[count - 1], bases[count - 1] + sizes[count - 1]):
        for back in range(copies + 1):  # the node is the chain's first member, its second, ...
            whole = True
            for member in range(copies + 1):
                other = (node + (member - back) * distance) % nodes
                if not is_hurt(other, bases, sizes, count):
                    whole = False
                    break
            if whole:
                return True
    return False


@numba.njit(nogil=True, cache=True)
def one(times, places, kinds, repairs, mechanism, nodes, rack, spares, horizon, out):  # noqa: ANN001, ANN201
    """Simulate one trial and one mechanism; `out` has the columns above."""
    tau, stall, lag, recover, overhead, copies_, distance_, protect = mechanism[:8]
    disk_tau, disk_stall, disk_recover, soft_hurts = mechanism[8:12]
    copies, distance = int(copies_), int(distance_)
    # Persistent checkpoints beside copies are a steady cost, in proportion to the work.
    disk_share = disk_stall / (disk_tau + disk_stall) if copies > 0 else 0.0
    rate = (1 - overhead) * (1 - disk_share)
    bases = np.empty(len(times) + 1, np.int64)
    sizes = np.empty(len(times) + 1, np.int64)
    hurt = 0
    repaired = [0.0]  # a list that numba can type
    repaired.pop()
    free = spares
    out[:] = 0.0
    up_from = ready = outage_from = needed = 0.0
    for i in range(len(times) + 1):
        now = times[i] if i < len(times) else horizon
        if now > horizon:
            now = horizon
        running = now >= up_from
        if running:  # settle what was done since the last recovery
            up = now - up_from
            cycles = np.floor(up / (tau + stall))
            rest = up - cycles * (tau + stall)
            partial = min(rest, tau)
            out[STALL] += cycles * stall + rest - partial
            work = (cycles * tau + partial) * rate
            out[OVERHEAD] += (cycles * tau + partial) * (1 - rate)
            out[USEFUL] += work
            if now < horizon:
                back = partial
                if cycles >= 1 and rest < lag:
                    back += tau
                out[USEFUL] -= back * rate
                out[LOST] += back * rate
        if now >= horizon:
            break
        out[FAULTS] += 1
        while len(repaired) > 0 and repaired[0] <= now:
            heapq.heappop(repaired)
            free += 1
        size, base = 1, int(places[i])
        if kinds[i] == RACK:
            base -= base % rack
            size = min(rack, nodes - base)
        need = recover
        if copies > 0:
            if running and now >= up_from + protect:
                hurt = 0
            gone = kinds[i] == JOB
            if kinds[i] != SOFT or soft_hurts > 0:
                bases[hurt] = base
                sizes[hurt] = size
                hurt += 1
                gone = gone or is_lost(bases, sizes, hurt, copies, distance, nodes)
            if gone:
                out[STATE_LOSSES] += 1
                hurt = 0
                need = disk_recover
                # A second loss finds the work at a checkpoint, but for rounding.
                # Between two lie the work of one and the stall; `rate` has its share of that.
                spacing = disk_tau * (1 - overhead)
                saved = np.floor(out[USEFUL] / spacing + 1e-9) * spacing
                back = max(0.0, out[USEFUL] - saved)
                out[USEFUL] -= back
                out[LOST] += back
        start = now
        if kinds[i] == NODE or kinds[i] == RACK:
            for _ in range(size):
                heapq.heappush(repaired, now + repairs[i])
            free -= size  # below 0: so many repairs are waited for
            if free < 0:
                start = max(start, np.sort(np.array(repaired))[-free - 1])
            out[OUT] = max(out[OUT], float(len(repaired)))
        if running:
            outage_from = now
            needed = need
        else:  # the recovery begins anew: take back what it was to have
            if ready > now:
                out[WAITING] -= ready - now
                out[RECOVERING] -= up_from - ready
            else:
                out[RECOVERING] -= up_from - now
            start = max(start, ready)
            needed = max(needed, need)
        ready = start
        up_from = ready + needed
        out[WAITING] += ready - now
        out[RECOVERING] += needed
        out[OUTAGE] = max(out[OUTAGE], min(up_from, horizon) - outage_from)
    if up_from > horizon:  # what is beyond the end
        over = up_from - max(ready, horizon)
        out[RECOVERING] -= over
        if ready > horizon:
            out[WAITING] -= ready - horizon


@numba.njit(nogil=True, cache=True)
def many(times, places, kinds, repairs, mechanisms, nodes, rack, spares, horizon, out):  # noqa: ANN001, ANN201
    """Simulate all trials; a row of `mechanisms` and of `out` each."""
    for i in range(len(times)):
        one(
            times[i], places[i], kinds[i], repairs[i], mechanisms[i],
            nodes, rack, spares, horizon, out[i],
        )  # fmt: skip
