"""A killed server as a span, as a collector of OpenTelemetry gets it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from job import TRAIN, Job

pytest.importorskip("opentelemetry.exporter.otlp.proto.http", reason="[opentelemetry]: pyft[otel]")

from collector import attributes, collector  # noqa: E402

pytestmark = pytest.mark.soft


def test_a_recovery_is_a_span_inside_that_of_the_job(tmp_path: Path) -> None:
    options = ("--gpus", "soft:1", "--spans", "--inject", "server-kill,rank=0,step=2")
    with collector() as found:
        job = Job(
            tmp_path,
            [sys.executable, TRAIN, "--steps", "4"],
            options=options,
            environment={"OTEL_EXPORTER_OTLP_ENDPOINT": found.url},
        )
        try:
            assert job.wait(120) == 0, job.errors()
            job.assert_nothing_left()
        finally:
            job.kill_everything()
        spans = {span.name: span for span in found.spans()}
    whole, recovery = spans["pyft.job"], spans["pyft.recovery"]
    assert recovery.parent_span_id == whole.span_id
    (fault,) = job.meta()["recovery"]["faults"]
    told = attributes(recovery)
    assert told["pyft.fault"] == "server-killed"
    assert told["pyft.outcome"] == "recovered"
    assert told["pyft.replayed_entries"] == fault["replayed_entries"] > 0
    phases = [span for name, span in spans.items() if name.startswith("pyft.recovery.")]
    assert {span.parent_span_id for span in phases} == {recovery.span_id}
    assert {span.name.rpartition(".")[2] for span in phases} >= {"detect", "replay"}
    assert whole.start_time_unix_nano <= recovery.start_time_unix_nano
    assert recovery.end_time_unix_nano <= whole.end_time_unix_nano
