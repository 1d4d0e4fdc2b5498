"""The page of a job: one HTML file that loads nothing, so that it opens anywhere."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from pyft.recovery import report
from pyft.recovery.report import PHASES
from pyft.report import chart
from pyft.report.history import number
from pyft.report.lanes import MOST_STEPS, FaultSpan, Job, Lane

TEMPLATE = Path(__file__).with_name("page.html")
MOST_CLOSE_UPS = 12
AROUND = 0.1  # of what a close-up shows: before it, and after it
BEFORE_REPAIR = ("detect", "fence", "wait")


def html(job: Job) -> str:
    """Return the page."""
    parts = [*_head(job), *_tiles(job), *_whole(job)]
    if job.faults:
        parts += [*_faults(job), *_close_ups(job)]
    parts += [*_remarks(job), *_ranks(job)]
    title = f"pyft: job {job.name}"
    return Template(TEMPLATE.read_text(encoding="utf-8")).substitute(
        title=escape(title), body="\n".join(parts)
    )


def _head(job: Job) -> Iterator[str]:
    began = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(number(job.meta.get("started"))))
    command = " ".join(map(str, job.meta.get("command", [])))
    spares = int(number(job.meta.get("spares")))
    more = f" and {spares} spare{'s' if spares > 1 else ''}" if spares else ""
    yield f"<h1>Job {escape(job.name)}</h1>"
    yield f"<p><code>{escape(command)}</code><br>"
    yield f'<span class="faint">began {began}, on {escape(str(job.meta.get("gpus", "?")))}{more}, '
    yield f"--protect {escape(str(job.meta.get('protect', '?')))}</span></p>"


def _tiles(job: Job) -> Iterator[str]:
    found = job.recovery
    faults = report.number_of_faults(found)
    bad = faults and found["recovered"] < faults
    recovered = f"{found['recovered']} of {faults}" if faults else "none"
    steps = max((lane.count for lane in job.lanes), default=0)
    ended = "good" if job.state == "exit code 0" else "bad" if job.state != "running" else ""
    tiles = [
        ("", job.state, "how it ended" if job.state != "running" else "now"),
        ("", chart.clock(round(job.seconds, 1)), "took"),
        ("", str(len(job.lanes)), "ranks"),
        ("", f"{steps}", "steps"),
        ("bad" if bad else "good" if faults else "", recovered, "faults recovered"),
        ("", f"{found['lost_seconds']:.2f} s", "stood still"),
        ("", f"{found['goodput']:.2%}", "of the time at work"),
    ]
    if found["verdict"]:
        tiles.append(("", str(found["verdict"]), "replays"))
    tiles[0] = (ended, *tiles[0][1:])
    yield '<div class="tiles">'
    for kind, value, name in tiles:
        yield f'<div class="tile {kind}"><b>{escape(value)}</b>{name}</div>'
    yield "</div>"


def _whole(job: Job) -> Iterator[str]:
    yield "<h2>The ranks</h2>"
    if not job.lanes:
        why = "it ran with --direct" if job.meta.get("direct") else "no rank has used a GPU"
        yield f'<p class="faint">There are no lanes: {why}.</p>'
        return
    yield (
        '<p class="faint">Time runs from left to right. Point at anything to read what it is. '
        "A snapshot is shown when the agent saw it, up to a moment later.</p>"
    )
    starts = [lane.steps[0] for lane in job.lanes if lane.steps]
    start = min([*starts, *(fault.start for fault in job.faults)], default=0.0) if starts else 0.0
    start = max(0.0, start - 0.05 * (job.seconds - start))
    if any(lane.count > len(lane.steps) for lane in job.lanes):
        yield f'<p class="faint">Of each rank the last {MOST_STEPS} steps are shown.</p>'
    elif start > 0.1 * job.seconds:
        yield f'<p class="faint">Before {start:.0f} s the program was starting: left out.</p>'
    else:
        start = 0.0
    end = _last(job) or job.seconds
    yield f'<div class="wide">{chart.svg(job.lanes, start, end, "all ranks")}</div>'
    yield from _legend()
    if not all(lane.exact for lane in job.lanes):
        yield (
            '<p class="faint">Older steps are spread evenly between two looks of the agent: '
            "the ring has kept the last ones only.</p>"
        )


def _last(job: Job) -> float:
    """Return when the last thing happened that a lane shows, and a little more."""
    ends = [one for lane in job.lanes for one in _ends(lane)]
    return min(job.seconds, max(ends) * 1.02) if ends else 0.0


def _ends(lane: Lane) -> list[float]:
    last = [span.end for span in lane.snapshots[-1:]] + [fault.end for fault in lane.faults]
    return [*lane.steps[-1:], *last]


def _legend() -> Iterator[str]:
    shapes = {
        "a step ended": '<line class="step" x1="6" x2="6" y1="0" y2="12" stroke-width="2"/>',
        "a snapshot was committed": '<path class="snapshot" d="M6 2l4 4-4 4-4-4z"/>',
        "a fault, with its number": '<path class="flag" d="M2 12V1h9v7h-9"/>',
    }
    yield '<ul class="legend">'
    for name, shape in shapes.items():
        yield f'<li><svg viewBox="0 0 12 12">{shape}</svg>{name}</li>'
    for name, meaning in chart.PHASES.items():
        box = f'<rect class="{name}" width="12" height="12" rx="2"/>'
        yield f'<li title="{meaning}"><svg viewBox="0 0 12 12">{box}</svg>{name}: {meaning}</li>'
    yield "</ul>"


def _faults(job: Job) -> Iterator[str]:
    yield "<h2>Faults</h2>"
    head = ("#", "at", "rank", "fault", "outcome", "GPU", "stood still", *PHASES)
    rows = [_fault_row(fault) for fault in job.faults]
    yield from _table(head, rows, text=(3, 4))
    yield '<p class="faint">The times of the phases are in ms.</p>'


def _fault_row(fault: FaultSpan) -> tuple[str, ...]:
    one = fault.fields
    gpu_from, gpu_to = one.get("gpu_from", -1), one.get("gpu_to", -1)
    phases = one.get("phases_ms") or {}
    verdict = f", {one['verdict']}" if one.get("verdict") else ""
    return (
        *(str(fault.number), f"{number(one.get('noticed')):.2f} s", str(one.get("rank"))),
        *(fault.name, f"{one.get('outcome', '?')}{verdict}"),
        f"{gpu_from} → {gpu_to}" if gpu_to not in (-1, gpu_from) else str(gpu_from),
        report.span(fault.end - fault.start) if one.get("ended") else "-",
        *(f"{number(phases[name]):.1f}" if name in phases else "-" for name in PHASES),
    )


def _close_ups(job: Job) -> Iterator[str]:
    for fault in job.faults[:MOST_CLOSE_UPS]:
        start, end = close_up(fault)
        label = f"fault {fault.number}: {fault.name} of rank {fault.fields.get('rank')}"
        yield f"<h2>Close-up of {escape(label)}</h2>"
        left_out = " What was before the repair is left out here." if start > fault.start else ""
        yield f'<p class="faint">{escape(_story(fault))}{left_out}</p>'
        yield f'<div class="wide">{chart.svg(job.lanes, start, end, label)}</div>'
    if len(job.faults) > MOST_CLOSE_UPS:
        yield f'<p class="faint">The first {MOST_CLOSE_UPS} faults have a close-up.</p>'


def close_up(fault: FaultSpan) -> tuple[float, float]:
    """Return the time that is shown of a fault: all of it, or its repair if that is a small part."""
    start, end = fault.start, fault.end
    repair = max([start, *(one.end for one in fault.phases if one.name in BEFORE_REPAIR)])
    if start + end < 2 * repair < 2 * end:
        start = repair
    around = AROUND * (end - start)
    return max(0.0, start - around), end + around


def _story(fault: FaultSpan) -> str:
    """Return in a sentence why the agent took it for a fault, and what was done."""
    one = fault.fields
    megabytes = number(one.get("restored_bytes")) / 1e6
    return (
        f"Evidence: {one.get('evidence') or 'none'}. Done: {one.get('action') or 'nothing yet'}; "
        f"{megabytes:.1f} MB restored, {one.get('replayed_entries', 0)} entries replayed."
    )


def _remarks(job: Job) -> Iterator[str]:
    found = job.recovery
    lines = [
        f"The fault [{one.get('fault')}] was asked for and did not happen: {one.get('why')}"
        for one in found["not_injected"]
    ]
    lines += [
        f"Memory of rank {one.get('rank')} had changed silently on GPU {one.get('gpu')}, "
        f"{one.get('bytes')} bytes, found at cut {one.get('cut')}."
        for one in found["corruptions"]
    ]
    if found["agent_restarts"]:
        lines.append(f"The agent has died and was replaced {found['agent_restarts']} times.")
    if lines:
        yield "<h2>Remarks</h2><ul>" + "".join(f"<li>{escape(one)}</li>" for one in lines) + "</ul>"


def _ranks(job: Job) -> Iterator[str]:
    entries = [*job.meta.get("channels", []), *job.meta.get("live", [])]
    if not entries:
        return
    yield "<h2>Processes</h2>"
    head = (
        "rank",
        "pid",
        "device",
        "GPU",
        "calls in the ring",
        "snapshots",
        "live",
        "in the store",
    )
    server = "runs" if job.state == "running" else "not known"
    entries.sort(key=lambda one: number(one.get("rank")))
    rows = [_process({"server_ended": server} | entry) for entry in entries]
    yield from _table((*head, "its server", "trace"), rows, text=(-2, -1))
    yield f'<p class="faint">The traces lie in <code>{escape(str(job.folder))}</code>; '
    yield f"<code>pyft trace {escape(job.name)} --tail 20</code> prints the last calls.</p>"


def _process(entry: dict[str, Any]) -> tuple[str, ...]:
    store = entry.get("store") or {}
    return (
        *(str(entry.get(name, "?")) for name in ("rank", "pid", "device", "gpu")),
        *(str(entry.get("entries_total", "-")), str(store.get("snapshots", "-"))),
        *(f"{number(store.get(name)) / 1e6:.1f} MB" for name in ("live_bytes", "heap_used")),
        *(str(entry["server_ended"]), str(entry.get("file", "-"))),
    )


def _table(
    head: Sequence[str], rows: Iterable[Sequence[str]], text: Sequence[int]
) -> Iterator[str]:
    """Yield a table; columns `text` are words, which may be long."""
    words = {index % len(head) for index in text}

    def cell(tag: str, index: int, value: str) -> str:
        kind = ("long" if tag == "td" else "text") if index in words else ""
        return f'<{tag} class="{kind}">{escape(value)}</{tag}>'

    yield '<div class="wide"><table><thead><tr>'
    yield "".join(cell("th", index, name) for index, name in enumerate(head))
    yield "</tr></thead><tbody>"
    for row in rows:
        yield "<tr>" + "".join(cell("td", i, value) for i, value in enumerate(row)) + "</tr>"
    yield "</tbody></table></div>"
