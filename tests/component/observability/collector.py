"""A collector of traces on a real socket: OTLP over HTTP, as its specification has it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """What has come in. While `open` is not set, it takes connections and answers nobody."""

    url: str
    requests: list[ExportTraceServiceRequest] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    open: threading.Event = field(default_factory=threading.Event)

    @property
    def spans(self) -> list[Span]:
        resources = [resource for request in self.requests for resource in request.resource_spans]
        return [span for resource in resources for scope in resource.scope_spans for span in scope.spans]

    @property
    def resources(self) -> list[dict[str, str]]:
        """The attributes of whoever has sent spans."""
        found = [resource.resource for request in self.requests for resource in request.resource_spans]
        return [{each.key: each.value.string_value for each in resource.attributes} for resource in found]


@contextmanager
def collecting() -> Iterator[Collector]:
    class Taker(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.open.wait()
            collector.paths.add(self.path)
            collector.requests.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Taker)
    server.daemon_threads = True
    collector = Collector(f"http://127.0.0.1:{server.server_address[1]}")
    collector.open.set()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield collector
    finally:
        collector.open.set()
        server.shutdown()
        server.server_close()
