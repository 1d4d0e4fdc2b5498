"""A collector of OpenTelemetry on the loopback interface, for tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """What has come so far."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.refuse = False
        self.refused = 0
        self._requests: list[ExportTraceServiceRequest] = []

    def spans(self) -> list[Any]:
        """Return all spans."""
        return [
            span
            for request in self._requests
            for of_resource in request.resource_spans
            for scope in of_resource.scope_spans
            for span in scope.spans
        ]

    def services(self) -> set[str]:
        """Return the names of those that have sent them."""
        return {
            attribute.value.string_value
            for request in self._requests
            for of_resource in request.resource_spans
            for attribute in of_resource.resource.attributes
            if attribute.key == "service.name"
        }

    def take(self, path: str, body: bytes) -> int:
        """Return the code of the answer."""
        if self.refuse or path != "/v1/traces":
            self.refused += 1
            return 400  # which is not tried again by itself
        self._requests.append(ExportTraceServiceRequest.FromString(body))
        return 200


def attributes(span: Any) -> dict[str, Any]:
    """Return the attributes of a span as they came."""
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}


@contextmanager
def collector() -> Iterator[Collector]:
    """Listen on a port that the kernel chooses."""
    found: list[Collector] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            self.send_response(found[0].take(self.path, body))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found.append(Collector(f"http://127.0.0.1:{server.server_address[1]}"))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield found[0]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
