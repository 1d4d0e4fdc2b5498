"""Start the process that sends spans, and let it end."""

from __future__ import annotations

import contextlib
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from pyft.agent.process import messages
from pyft.errors import UsageError

LAST_S = 30.0  # for the rest, when the job has ended
DONE = b"done"  # the process's last word: all that was lost has been said
_SCRIPT = Path(__file__).with_name("__main__.py")
_NEEDED = "opentelemetry.exporter.otlp.proto.http"


def check() -> None:
    """Raise UsageError unless OpenTelemetry is there."""
    try:
        found = importlib.util.find_spec(_NEEDED)
    except ModuleNotFoundError:
        found = None
    if found is None:
        raise UsageError("--spans needs OpenTelemetry's SDK: pip install 'pyft[otel]'")


@contextlib.contextmanager
def following(folder: Path) -> Iterator[int]:
    """Have the spans of the job in this folder sent while it runs, by the process that is yielded.

    Whatever ends the job's processes has to spare it: it sends what they have come to.
    """
    # Its input ends when this process does, however that is. A session of its own: Ctrl-C is for the
    # command.
    process = subprocess.Popen(
        [sys.executable, "-I", str(_SCRIPT), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        yield process.pid
    finally:
        # By its last word, not by its status: the launcher reaps all that ends below it.
        try:
            said, _ = process.communicate(timeout=LAST_S)
            if not said.endswith(DONE):
                messages.say("the process that sends spans has ended too early: the rest is lost")
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            messages.say(f"spans were not sent within [{LAST_S:g} s]: the rest is lost")
