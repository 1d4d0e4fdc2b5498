"""Spans that have ended and are not sent yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

MOST = 10_000  # more are forgotten, the oldest first: a collector that stays away costs no memory


class Outbox(SpanProcessor):
    """Keeps spans until the collector has taken them."""

    def __init__(self, exporter: SpanExporter, say: Callable[[str], None]) -> None:
        self._exporter, self._say = exporter, say
        self._waiting: deque[ReadableSpan] = deque(maxlen=MOST)
        self._silent = False  # it has been said that they cannot be sent

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing: only ended spans are sent."""

    def on_end(self, span: ReadableSpan) -> None:
        """Keep it until the next `send`."""
        self._waiting.append(span)

    def send(self) -> bool:
        """Send all that waits; say once when it cannot be."""
        if not self._waiting:
            return True
        if self._exporter.export(tuple(self._waiting)) is SpanExportResult.SUCCESS:
            self._waiting.clear()
            self._silent = False
            return True
        if not self._silent:
            self._silent = True
            where = getattr(self._exporter, "_endpoint", "the collector")
            self._say(f"spans cannot be sent to [{where}]: they are kept, and sent when it answers")
        return False

    def close(self) -> None:
        """Send the rest; say what is lost."""
        if not self.send():
            self._say(f"[{len(self._waiting)}] spans are lost: nothing has taken them")
        self._exporter.shutdown()
