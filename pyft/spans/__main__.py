"""The process that sends the spans of a job: python -I pyft/spans/__main__.py FOLDER

Started by path, in isolated mode, as the agent is. It follows meta.json of the job's folder until its input ends, which is when the launcher has. Where
spans go, and what is added to them, say OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_ENDPOINT).
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
import time
from pathlib import Path

if not __package__:
    # Isolated mode adds no folder of ours to the path.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider

import pyft
from pyft.agent.job import job_folder
from pyft.agent.process import messages
from pyft.spans.outbox import Outbox
from pyft.spans.process import DONE
from pyft.spans.recoveries import Recoveries

LOOK_S = 1.0


def ended(seconds: float) -> bool:
    """Wait so long, or until the launcher has ended."""
    return bool(select.select([0], [], [], seconds)[0])


def provider() -> TracerProvider:
    """Return what makes spans: of the service `pyft`, unless OTEL_SERVICE_NAME names another."""
    own = Resource({SERVICE_NAME: "pyft", "service.version": pyft.__version__})
    given = Resource.create()
    named = "OTEL_SERVICE_NAME" in os.environ or SERVICE_NAME in os.environ.get(
        "OTEL_RESOURCE_ATTRIBUTES", ""
    )
    return TracerProvider(resource=own.merge(given) if named else given.merge(own))


def main() -> int:
    folder = Path(sys.argv[1])
    # The command has signals of the terminal; this process ends with the launcher.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # Outbox says it in a sentence
    exporter = OTLPSpanExporter()
    outbox = Outbox(exporter, messages.say)
    spans = provider()
    spans.add_span_processor(outbox)
    recoveries = None
    over = False
    while not over:
        over = ended(LOOK_S)
        meta = job_folder.read_meta(folder)
        if not meta:
            continue
        recoveries = recoveries or Recoveries(spans.get_tracer("pyft", pyft.__version__), meta)
        recoveries.end(meta, time.time()) if over else recoveries.look(meta)
        outbox.send()
    outbox.close()
    with contextlib.suppress(BrokenPipeError):  # the launcher was killed
        os.write(1, DONE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
