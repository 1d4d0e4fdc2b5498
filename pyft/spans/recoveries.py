"""A job as spans: one of the job, in it one of each fault, in that one of each phase of its recovery."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opentelemetry.trace import Status, StatusCode, Tracer, set_span_in_context

from pyft.recovery.report import key_of
from pyft.report.history import number, state_of
from pyft.report.lanes import FaultSpan, fault_span

UNDER_WAY = "under way"
Key = tuple[Any, ...]
GOOD = ("recovered", "error delivered", "moved")
# What meta.json calls it, and what the attribute is called.
_ATTRIBUTES = {
    "rank": "pyft.rank",
    "device": "pyft.device",
    "fault": "pyft.fault",
    "evidence": "pyft.evidence",
    "cut": "pyft.cut",
    "action": "pyft.action",
    "gpu_from": "pyft.gpu.from",
    "gpu_to": "pyft.gpu.to",
    "epoch_from": "pyft.incarnation.from",
    "epoch_to": "pyft.incarnation.to",
    "restored_bytes": "pyft.restored_bytes",
    "replayed_entries": "pyft.replayed_entries",
    "verdict": "pyft.verdict",
    "outcome": "pyft.outcome",
    "own_error": "pyft.own_error",
}


class Recoveries:
    """Makes the spans of one job, each once."""

    def __init__(self, tracer: Tracer, meta: Mapping[str, Any]) -> None:
        self._tracer = tracer
        self._started = number(meta.get("started"))
        self._job = tracer.start_span("pyft.job", start_time=self._ns(0.0))
        self._inside = set_span_in_context(self._job)
        self._made: set[Key] = set()
        self._before: dict[Key, Mapping[str, Any]] = {}

    def look(self, meta: Mapping[str, Any], last: bool = False) -> None:
        """Make spans of the faults that have ended.

        A fault is taken when two looks see the same, or at the last one: figures are corrected for a
        moment after the rank works again.
        """
        recovery = meta.get("recovery") or {}
        faults = {key_of(fields): dict(fields) for fields in recovery.get("faults") or []}
        for place, (key, fields) in enumerate(faults.items(), 1):
            known = self._before.get(key) == fields
            ended = fields.get("outcome") != UNDER_WAY
            if key not in self._made and (last or (known and ended)):
                self._made.add(key)
                self._fault(fault_span(place, fields))
        self._made &= faults.keys()  # of those before there are no entries any more
        self._before = faults

    def end(self, meta: Mapping[str, Any], now: float) -> None:
        """Make spans of what is left, and that of the job. `now`: when it ended, if nothing says so."""
        self.look(meta, last=True)
        self._job.set_attribute("pyft.job", str(meta.get("job", "")))
        self._job.set_attribute("pyft.gpus", str(meta.get("gpus", "")))
        self._job.set_attribute("process.command_args", [str(w) for w in meta.get("command", ())])
        self._job.set_attribute("pyft.state", state_of(meta))
        code = meta.get("exit_code")
        if isinstance(code, int):
            self._job.set_attribute("process.exit.code", code)
        if code != 0:
            self._job.set_status(Status(StatusCode.ERROR, state_of(meta)))
        ended = number(meta.get("ended")) or now
        self._job.end(end_time=int(max(ended, self._started) * 1e9))

    def _ns(self, seconds: float) -> int:
        return int((self._started + seconds) * 1e9)

    def _fault(self, fault: FaultSpan) -> None:
        names = {name: fault.fields.get(name) for name in _ATTRIBUTES}
        values = {
            _ATTRIBUTES[name]: value for name, value in names.items() if value not in (None, "")
        }
        span = self._tracer.start_span(
            "pyft.recovery", self._inside, attributes=values, start_time=self._ns(fault.start)
        )
        if (outcome := str(fault.fields.get("outcome"))) not in GOOD:
            span.set_status(Status(StatusCode.ERROR, outcome))
        inside = set_span_in_context(span)
        for phase in fault.phases:
            child = self._tracer.start_span(
                f"pyft.recovery.{phase.name}", inside, start_time=self._ns(phase.start)
            )
            child.end(end_time=self._ns(phase.end))
        span.end(end_time=self._ns(fault.end))
