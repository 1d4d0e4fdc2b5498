"""What a node with eight GPUs and stock NCCL does to pyft, on soft GPUs: ratios instead of sizes.

docs/research/rehearsal.md derives the numbers. A job is described by what one rank of it copies,
touches and writes into its log. What the same training is on soft GPUs is measured, undisturbed;
the settings that `settings` returns give it the ratios of the large job.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from places import Place

from pyft.trace.reader import TraceReader

COPY_GB_S = 3.2  # of a snapshot, one thread, with digests
TOUCH_GB_S = 1.1  # the same into memory that is new
RING_MB = 64  # PYFT_RING_MB
HANG_S = 60  # PYFT_HANG_S
LEAST_HANG_S = 3.0  # below it two cores with many processes stand still by themselves
PAGE_KB = 4
REPLAYS = 2  # of a rank, at most, for each fault
NEAR = 0.02  # how far a loss may be from the undisturbed one
MODES = {"PYFT_REPLAY": "all", "PYFT_BACKGROUND_COPIES": "need"}  # the default with NCCL


@dataclass(frozen=True)
class Large:
    """What a rank of a large job needs."""

    step_s: float
    live_gb: float  # all of which a step changes
    ring_mb: float  # of a step

    @property
    def copy_to_step(self) -> float:
        """How much of a step the copies of a snapshot take."""
        return self.live_gb / COPY_GB_S / self.step_s

    @property
    def ring_steps(self) -> float:
        """How many steps the ring holds."""
        return RING_MB / self.ring_mb

    @property
    def touch_to_hang(self) -> float:
        """How much of the time after which a server counts as stuck the first snapshot takes."""
        return self.live_gb / TOUCH_GB_S / HANG_S


LARGE = {
    "8b": Large(step_s=9.0, live_gb=16.0, ring_mb=26.4),
    "70b": Large(step_s=34.0, live_gb=62.0, ring_mb=32.0),
}


@dataclass(frozen=True)
class Small:
    """What the slowest rank of an undisturbed training on soft GPUs has needed."""

    step_s: float
    copied_mb: float  # of a snapshot
    ring_kb: float  # of a step


def measure(channels: Iterable[Mapping], folder: Path) -> Small:
    """Return what a training has needed, from what its job has left."""
    found = []
    for channel in channels:
        with TraceReader(folder / channel["file"]) as trace:
            cuts = [(e.time_ns, e.position) for e in trace.entries() if e.call == "CUT"]
        steps = list(zip(cuts, cuts[1:], strict=False))
        figures = channel["store"]
        found.append(
            Small(
                statistics.median(b[0] - a[0] for a, b in steps) / 1e9,
                figures["copied_bytes"] / max(1, figures["snapshots"]) / 1e6,
                statistics.median(b[1] - a[1] for a, b in steps) / 1024,
            )
        )
    return max(found, key=lambda one: one.ring_kb)


def settings(large: Large, small: Small) -> dict[str, str]:
    """Return what gives the small training the ratios of the large one."""
    rate = small.copied_mb / (large.copy_to_step * small.step_s)
    ring = max(large.ring_steps * small.ring_kb, 2 * PAGE_KB)
    touch_s = COPY_GB_S / TOUCH_GB_S * small.copied_mb / rate
    hang = max(touch_s / large.touch_to_hang, LEAST_HANG_S)
    return MODES | {
        "PYFT_COPY_MB_S": f"{rate:.3f}",
        "PYFT_RING_KB": f"{-(-ring // PAGE_KB) * PAGE_KB:.0f}",
        "PYFT_HANG_S": f"{hang:.1f}",
    }


def in_words(small: Small, chosen: Mapping[str, str]) -> str:
    """Return what was measured, and the ratios that the settings give."""
    copy_s = small.copied_mb / float(chosen["PYFT_COPY_MB_S"])
    touch_s = COPY_GB_S / TOUCH_GB_S * copy_s
    return (
        f"a step is [{small.step_s:.2f} s], a snapshot [{small.copied_mb:.2f} MB], a step's log "
        f"[{small.ring_kb:.0f} KB]: copy to step [{copy_s / small.step_s:.2f}], the ring holds "
        f"[{float(chosen['PYFT_RING_KB']) / small.ring_kb:.1f}] steps, first touch to hang limit "
        f"[{touch_s / float(chosen['PYFT_HANG_S']):.2f}]"
    )


def asked(place: Place) -> int:
    """Return how many faults of servers a place is."""
    kills = sum(who != "agent" for _, who in place.kills)
    return len(place.faults) + kills + ("PYFT_FAULT" in place.settings)


def replays(recovery: Mapping) -> int:
    """Return how often that rank has replayed which did it most."""
    return max(Counter(fault["rank"] for fault in recovery["faults"]).values(), default=0)


def too_often(place: Place, recovery: Mapping) -> str:
    """Say so if a rank has replayed more often than the faults explain, and for which."""
    most = REPLAYS * asked(place)
    if replays(recovery) <= most:
        return ""
    classes = Counter(fault["fault"] for fault in recovery["faults"])
    return f"a rank replays [{replays(recovery)}] times, at most [{most}]: {dict(classes)}"


def near(got: list[str], wanted: list[str]) -> bool:
    """Say whether the losses of each step are near those that were wanted."""

    def losses(lines: list[str]) -> Iterator[float]:
        found = [re.search(r"step=(\d+).*loss=(\S+)", line) for line in lines]
        pairs = [(int(one[1]), float(one[2])) for one in found if one]
        return (loss for _, loss in sorted(pairs))

    pairs = zip(losses(got), losses(wanted), strict=False)
    return all(math.isclose(one, other, rel_tol=NEAR, abs_tol=1e-6) for one, other in pairs)


def summary(seen: list[tuple[Place, Mapping]]) -> str:
    """Return the figures of a rehearsal."""
    found = [(asked(place), recovery) for place, recovery in seen if recovery]
    given_up = sum(recovery["given_up"] for _, recovery in found)
    most = max((replays(recovery) / max(1, times) for times, recovery in found), default=0)
    verdicts = Counter(recovery["verdict"] for _, recovery in found)
    classes = Counter(fault["fault"] for _, recovery in found for fault in recovery["faults"])
    protected = min((recovery.get("protected_share", 0) for _, recovery in found), default=0)
    return (
        f"{sum(times for times, _ in found)} faults asked for, {given_up} ranks given up, at most "
        f"{most:.1f} replays a fault; verdicts {dict(verdicts)}; classes {dict(classes)}; "
        f"protected {protected:.1%} of the time at least"
    )
