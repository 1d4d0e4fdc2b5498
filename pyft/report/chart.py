"""Lanes as a picture (SVG): steps as lines, snapshots as diamonds, recoveries as coloured boxes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape

from pyft.report.lanes import FaultSpan, Lane

WIDTH, LEFT, RIGHT = 1060.0, 96.0, 16.0
LANE, GAP, TOP, AXIS = 40.0, 12.0, 18.0, 30.0
MOST_LINES = 250  # more steps in a window become boxes, darker where there are more of them
BOXES = 200
MOST_SNAPSHOTS = 250
SMALLEST = 1.5  # width of a box, or it could not be seen
TICKS = 8
PHASES = {
    "detect": "from the last sign of life until the agent knew",
    "fence": "until the old server was dead for certain",
    "wait": "for a GPU, while none was left",
    "spawn": "until a new server had its device",
    "restore": "objects and memory of the last snapshot",
    "communicator": "until it had its place in the communicators",
    "replay": "entries since the snapshot, executed again",
    "join": "until the rank worked again",
}


class Window:
    """The part of the time that a picture shows."""

    def __init__(self, start: float, end: float) -> None:
        self.start, self.end = start, max(end, start + 1e-6)

    def x(self, at: float) -> float:
        """Return where a time lies."""
        share = (at - self.start) / (self.end - self.start)
        return LEFT + min(max(share, 0.0), 1.0) * (WIDTH - LEFT - RIGHT)

    def shows(self, start: float, end: float) -> bool:
        """Say whether a part of it lies in the window."""
        return start <= self.end and end >= self.start


def svg(lanes: Sequence[Lane], start: float, end: float, label: str) -> str:
    """Return the picture of a window in time; `label` is for readers that cannot see it."""
    window = Window(start, end)
    height = TOP + len(lanes) * (LANE + GAP) + AXIS
    parts = [
        f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{escape(label)}">',
        *_axis(window, TOP + len(lanes) * (LANE + GAP)),
    ]
    for index, lane in enumerate(lanes):
        parts += _lane(lane, window, TOP + index * (LANE + GAP))
    return "\n".join([*parts, "</svg>"])


def ticks(start: float, end: float) -> list[float]:
    """Return round numbers between the two, not more than fit."""
    rough = max(end - start, 1e-6) / TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(unit * k for k in (1, 2, 5, 10) if unit * k >= rough)
    first = math.ceil(start / step - 1e-9)
    return [k * step for k in range(first, math.floor(end / step + 1e-9) + 1)]


def clock(seconds: float) -> str:
    """Return a time since the job's start, in few letters."""
    if seconds >= 3600:
        return f"{int(seconds // 3600)}:{int(seconds % 3600 // 60):02}:{int(seconds % 60):02}"
    return f"{seconds:.10g} s"


def _axis(window: Window, bottom: float) -> Iterator[str]:
    for at in ticks(window.start, window.end):
        x = window.x(at)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP:.0f}" y2="{bottom:.0f}"/>'
        text = clock(round(at, 6))
        yield f'<text class="axis" x="{x:.1f}" y="{bottom + 14:.0f}">{text}</text>'


def _lane(lane: Lane, window: Window, y: float) -> Iterator[str]:
    yield f'<g class="lane" data-rank="{lane.rank}">'
    width = WIDTH - LEFT - RIGHT
    yield f'<rect class="bed" x="{LEFT}" y="{y:.0f}" width="{width:.0f}" height="{LANE:.0f}" rx="4"/>'
    yield f'<text class="rank" x="4" y="{y + 17:.0f}">rank {lane.rank}</text>'
    yield f'<text class="gpu" x="4" y="{y + 32:.0f}">{_gpus(lane, window.end)}</text>'
    yield from _steps([at for at in lane.steps if window.shows(at, at)], window, y)
    for fault in lane.faults:
        if window.shows(fault.start, fault.end):
            yield from _fault(fault, window, y)
    found = [one for one in lane.snapshots if window.shows(one.start, one.end)]
    for one in found[:: max(1, math.ceil(len(found) / MOST_SNAPSHOTS))]:
        x, low = window.x(one.start), y + LANE
        yield (
            f'<path class="snapshot" d="M{x:.1f} {low - 9:.1f}l4 4-4 4-4-4z">'
            f"<title>snapshot of {escape(one.name)}, seen at {one.start:.2f} s</title></path>"
        )
    yield "</g>"


def _gpus(lane: Lane, end: float) -> str:
    """Return on which GPUs a rank was until then: one after the other for each of its devices."""
    paths = []
    for path in (lane.gpus, *lane.beside):
        gpus = dict.fromkeys(gpu for since, gpu in path if since <= end)
        paths += [" → ".join(map(str, gpus))] if gpus else []
    return f"GPU {', '.join(dict.fromkeys(paths))}" if paths else ""


def _steps(steps: list[float], window: Window, y: float) -> Iterator[str]:
    if len(steps) <= MOST_LINES:
        for at in steps:
            x = window.x(at)
            yield (
                f'<line class="step" x1="{x:.1f}" x2="{x:.1f}" y1="{y + 4:.0f}" '
                f'y2="{y + LANE - 14:.0f}"><title>a step ended at {at:.3f} s</title></line>'
            )
        return
    width = (window.end - window.start) / BOXES
    counts = [0] * BOXES
    for at in steps:
        counts[min(int((at - window.start) / width), BOXES - 1)] += 1
    for index, count in enumerate(counts):
        if count:
            start = window.start + index * width
            text = f"{count} steps in {width:.2g} s from {start:.1f} s"
            yield _many(text, (start, start + width), window, y, count / max(counts))


def _many(text: str, span: tuple[float, float], window: Window, y: float, share: float) -> str:
    left, right = window.x(span[0]), window.x(span[1])
    return (
        f'<rect class="many" x="{left:.1f}" y="{y + 4:.0f}" width="{right - left:.1f}" '
        f'height="{LANE - 18:.0f}" opacity="{0.15 + 0.85 * share:.2f}">'
        f"<title>{text}</title></rect>"
    )


def _fault(fault: FaultSpan, window: Window, y: float) -> Iterator[str]:
    what = f"fault {fault.number}: {escape(fault.name)}"
    yield f'<g class="fault" data-fault="{fault.number}">'
    whole = f"{what}, {fault.end - fault.start:.3f} s, {escape(str(fault.fields.get('outcome')))}"
    yield _box("down", whole, (fault.start, fault.end), window, y)
    for phase in fault.phases:
        text = f"{what}: {phase.name} {(phase.end - phase.start) * 1e3:.1f} ms"
        span = (phase.start, phase.end)
        if window.shows(*span):
            yield _box(f"phase {phase.name}", text, span, window, y)
    x = window.x(fault.start)
    yield f'<path class="flag" d="M{x:.1f} {y + LANE:.0f}V{y - 10:.0f}h15v11h-15"/>'
    yield f'<text class="number" x="{x + 7.5:.1f}" y="{y - 1:.0f}">{fault.number}</text>'
    yield "</g>"


def _box(kind: str, title: str, span: tuple[float, float], window: Window, y: float) -> str:
    left, right = window.x(span[0]), window.x(span[1])
    return (
        f'<rect class="{kind}" x="{left:.1f}" y="{y:.0f}" '
        f'width="{max(right - left, SMALLEST):.1f}" height="{LANE:.0f}">'
        f"<title>{title}</title></rect>"
    )
