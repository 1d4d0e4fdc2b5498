"""Spans of recoveries: what OpenTelemetry gets of a job, while it runs and at its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sample

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="[opentelemetry]: pyft[otel]")

from collector import attributes, collector  # noqa: E402
from job import PYFT  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import (  # noqa: E402
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import (  # noqa: E402
    InMemorySpanExporter,
)

from pyft.errors import UsageError  # noqa: E402
from pyft.spans import process  # noqa: E402
from pyft.spans.outbox import Outbox  # noqa: E402
from pyft.spans.recoveries import Recoveries  # noqa: E402


def meta_of(folder: Path, *faults: Any, **more: Any) -> dict[str, Any]:
    sample.write(folder, *faults, steps=1, **more)
    return json.loads((folder / "meta.json").read_text())


class Spans:
    """Recoveries, and what they have made."""

    def __init__(self, meta: dict[str, Any]) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.recoveries = Recoveries(provider.get_tracer("test"), meta)

    def names(self) -> list[str]:
        return [span.name for span in self.exporter.get_finished_spans()]

    def named(self, name: str) -> Any:
        return next(span for span in self.exporter.get_finished_spans() if span.name == name)


def test_a_fault_is_a_span_in_that_of_the_job(tmp_path: Path) -> None:
    meta = meta_of(tmp_path, sample.fault(replayed_entries=43))
    spans = Spans(meta)
    spans.recoveries.end(meta, now=0.0)
    recovery, job = spans.named("pyft.recovery"), spans.named("pyft.job")
    assert recovery.parent.span_id == job.context.span_id
    assert (job.start_time, job.end_time) == (1000 * 10**9, 1012 * 10**9)
    assert (recovery.start_time, recovery.end_time) == (1003 * 10**9, int(1003.5e9))
    found = {name: recovery.attributes[name] for name in ("pyft.rank", "pyft.fault")}
    assert found == {"pyft.rank": 1, "pyft.fault": "gpu-lost"}
    assert recovery.attributes["pyft.replayed_entries"] == 43
    assert recovery.attributes["pyft.verdict"] == "exact"
    assert recovery.status.is_ok is not False
    assert job.attributes["process.exit.code"] == 0


def test_phases_follow_each_other_in_the_span_of_their_fault(tmp_path: Path) -> None:
    meta = meta_of(tmp_path, sample.fault())
    spans = Spans(meta)
    spans.recoveries.end(meta, now=0.0)
    detect, restore = (spans.named(f"pyft.recovery.{name}") for name in ("detect", "restore"))
    recovery = spans.named("pyft.recovery")
    assert {one.parent.span_id for one in (detect, restore)} == {recovery.context.span_id}
    assert detect.start_time == recovery.start_time
    assert abs(detect.end_time - restore.start_time) < 1000
    assert restore.end_time - restore.start_time == pytest.approx(400e6, abs=1000)


def test_a_fault_is_sent_once_and_not_before_its_figures_rest(tmp_path: Path) -> None:
    open_fault = sample.fault()
    open_fault.outcome = "under way"
    spans = Spans(meta_of(tmp_path, open_fault))
    for _ in range(3):
        spans.recoveries.look(meta_of(tmp_path, open_fault))
    assert spans.names() == []
    spans.recoveries.look(meta_of(tmp_path, sample.fault(replayed_entries=1)))
    assert spans.names() == []
    for _ in range(3):
        spans.recoveries.look(meta_of(tmp_path, sample.fault(replayed_entries=2)))
    assert spans.names().count("pyft.recovery") == 1
    assert spans.named("pyft.recovery").attributes["pyft.replayed_entries"] == 2
    spans.recoveries.end(meta_of(tmp_path, sample.fault(replayed_entries=2)), now=0.0)
    assert spans.names().count("pyft.recovery") == 1
    assert spans.names()[-1] == "pyft.job"


def test_entries_that_are_only_counted_now_move_no_other(tmp_path: Path) -> None:
    """The list of a long job loses its first entry for each that comes."""
    faults = [sample.fault(epoch_from=number) for number in range(6)]
    spans = Spans(meta_of(tmp_path, *faults[:3]))
    for first in range(4):
        for _ in range(2):
            spans.recoveries.look(meta_of(tmp_path, *faults[first : first + 3]))
    spans.recoveries.end(meta_of(tmp_path, *faults[3:]), now=0.0)
    made = [s for s in spans.exporter.get_finished_spans() if s.name == "pyft.recovery"]
    assert [one.attributes["pyft.incarnation.from"] for one in made] == list(range(6))


@pytest.mark.parametrize(
    ("outcome", "bad"), [("recovered", False), ("given up: no spare", True), ("under way", True)]
)
def test_what_was_not_repaired_is_an_error(tmp_path: Path, outcome: str, bad: bool) -> None:
    fault = sample.fault()
    fault.outcome = outcome
    meta = meta_of(tmp_path, fault, exit_code=1)
    spans = Spans(meta)
    spans.recoveries.end(meta, now=0.0)
    assert (spans.named("pyft.recovery").status.status_code.name == "ERROR") is bad
    assert spans.named("pyft.job").status.status_code.name == "ERROR"


class Picky(SpanExporter):
    """Takes nothing at first."""

    def __init__(self) -> None:
        self.takes, self.got = False, 0

    def export(self, spans: Any) -> SpanExportResult:
        self.got += len(spans) if self.takes else 0
        return SpanExportResult.SUCCESS if self.takes else SpanExportResult.FAILURE


def test_spans_that_nobody_takes_are_kept_and_it_is_said_once(tmp_path: Path) -> None:
    said: list[str] = []
    exporter = Picky()
    outbox = Outbox(exporter, said.append)
    provider = TracerProvider()
    provider.add_span_processor(outbox)
    for name in ("one", "two"):
        provider.get_tracer("test").start_span(name).end()
        assert not outbox.send()
    assert len(said) == 1
    exporter.takes = True
    assert outbox.send()
    assert outbox.send()
    assert exporter.got == 2


def test_the_process_sends_them_while_the_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample.write(tmp_path, sample.fault())
    with collector() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        with process.following(tmp_path):
            pass
        assert {span.name for span in found.spans()} == {
            *("pyft.job", "pyft.recovery", "pyft.recovery.detect", "pyft.recovery.restore")
        }
        assert found.services() == {"pyft"}
        recovery = next(span for span in found.spans() if span.name == "pyft.recovery")
        assert attributes(recovery)["pyft.evidence"] == "error <999>"
        assert len({span.trace_id for span in found.spans()}) == 1


LOST = """
import sys
from pathlib import Path
from types import SimpleNamespace
from pyft.agent.process import process_tree
from pyft.agent.supervisor.launcher import Launcher
from pyft.cli import run
from pyft.errors import AgentLostError

def lost(launcher):
    process_tree.become_subreaper()
    raise launcher._clean_up(9)

run.leaving.run = lost
options = SimpleNamespace(head="", log_dir=Path(sys.argv[1]))
try:
    run._finish(Launcher(options), None, True)
except AgentLostError as error:
    print(error, file=sys.stderr)
"""


def test_a_job_that_loses_its_supervisor_has_its_spans(tmp_path: Path) -> None:
    """The launcher then ends all processes below it; that which sends spans is one of them."""
    sample.write(tmp_path, sample.fault())
    with collector() as found:
        own = {"OTEL_EXPORTER_OTLP_ENDPOINT": found.url, "XDG_STATE_HOME": str(tmp_path / "state")}
        done = subprocess.run(
            [sys.executable, "-c", LOST, str(tmp_path)],
            env={**os.environ, **own, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert "was killed by signal [9 SIGKILL]: ended the command" in done.stderr
        assert "spans" not in done.stderr
        assert {"pyft.job", "pyft.recovery"} <= {span.name for span in found.spans()}


def test_a_process_that_ends_too_early_is_missed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with process.following(tmp_path) as sender:
        os.kill(sender, signal.SIGKILL)
        os.waitpid(sender, 0)  # as the launcher may, which reaps all
    assert "that sends spans has ended too early: the rest is lost" in capfd.readouterr().err


def test_a_collector_that_refuses_costs_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    sample.write(tmp_path, sample.fault())
    with collector() as found:
        found.refuse = True
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.url)
        with process.following(tmp_path):
            pass
        assert found.refused
    said = capfd.readouterr().err.splitlines()
    assert len(said) == 2, said
    assert f"spans cannot be sent to [{found.url}/v1/traces]" in said[0]
    assert "[4] spans are lost" in said[1]


def test_the_flag_without_the_packages_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(process, "_NEEDED", "opentelemetry.not.there")
    with pytest.raises(UsageError, match=r"pip install 'pyft\[otel\]'"):
        process.check()


def test_pyft_run_sends_the_span_of_a_job(tmp_path: Path) -> None:
    with collector() as found:
        done = subprocess.run(
            [
                *(PYFT, "run", "--gpus", "soft:1", "--spans"),
                *("--log-dir", str(tmp_path), "--", sys.executable, "-c", "raise SystemExit(3)"),
            ],
            env={**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": found.url},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 3, done.stderr
        (job,) = found.spans()
        assert attributes(job)["process.exit.code"] == 3
