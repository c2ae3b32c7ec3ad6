"""A connection from a client: uvicorn's, which would take a request's head of any size, for any time."""

from asyncio import AbstractEventLoop, TimerHandle, Transport
from typing import Any

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from app.api.body import ARRIVED
from app.api.edge import ID_HEADER, request_id_of
from app.api.kinds import Kind
from app.api.problems import REQUEST_ID, ProblemError, answer

log = structlog.get_logger()

MAX_HEAD = 32_768
"""Bytes of a request line and its headers together, and of whatever else is neither head nor body."""

MOST_BEHIND = 16
"""Requests that may wait on a connection for the answer to the one before while more is read."""

GIVE_UP_BEFORE = 0.2
"""Seconds before the end of a shutdown's drain."""

MALFORMED = ProblemError(Kind.MALFORMED, "This is not HTTP/1.1.")
TOO_LARGE = ProblemError(
    Kind.HEAD_TOO_LARGE,
    f"The request line and the headers are larger than {MAX_HEAD} bytes, which is the most this service takes.",
)


class Connection(HttpToolsProtocol):
    """Refuses a head larger than MAX_HEAD, and hangs up when one is not complete within the keep-alive timeout.

    Whoever answers learns that the client has hung up, also if it has sent further requests behind this one: uvicorn
    tells it only to the last of them.
    """

    _answered: RequestResponseCycle | None = None
    _advanced = False
    _unparsed = 0
    _deadline: TimerHandle | None = None
    _refusal = MALFORMED
    _refused = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_deadline()
        super().connection_lost(exc)
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._advanced = False
        super().data_received(data)
        if self._advanced or self._refused:
            return
        self._unparsed += len(data)
        if self._unparsed > MAX_HEAD:
            self._refuse(TOO_LARGE)
        elif self._deadline is None:
            self._set_deadline()

    def on_headers_complete(self) -> None:
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD:
            self._refusal = TOO_LARGE
            raise ValueError("head too large")  # ends the parser, so that uvicorn sends its 400 response
        self._advance()
        super().on_headers_complete()
        if 0 < len(self.pipeline) < MOST_BEHIND:  # uvicorn pauses, and would not notice that the client hangs up
            self.flow.resume_reading()

    def on_body(self, body: bytes) -> None:
        self._advance()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.scope["state"][ARRIVED] = True
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answered = cycle
        cycle.transport = AnswerTransport(self.transport, self.loop)
        if cycle.scope["http_version"] == "1.0":
            app = UntilClose(app, cycle)
        super()._start_asgi_task(cycle, app)

    def shutdown(self) -> None:
        """Let the answer go out. If the client does not take it, give it up before uvicorn ends it with an error."""
        super().shutdown()
        patience = self.config.timeout_graceful_shutdown
        assert patience is not None
        self.loop.call_later(patience - GIVE_UP_BEFORE, self._give_up)

    def _give_up(self) -> None:
        if self.flow.write_paused or self.transport.is_closing():
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        self._refuse(self._refusal)

    def _refuse(self, refusal: ProblemError) -> None:
        """Say what is wrong and read no more; closing at once would throw the words away with what is unread."""
        self._refused = True
        if self._answering:
            self.transport.close()
            return
        self.transport.write(self._rendered(refusal))
        self.transport.write_eof()
        self._set_deadline()

    def _rendered(self, refusal: ProblemError) -> bytes:
        """The whole answer as it goes over the wire: what arrived has not become a request, but it gets an id."""
        request_id = request_id_of(self.headers or [])
        state = {**self.app_state, REQUEST_ID: request_id}
        response = answer(refusal, {"state": state, "root_path": self.root_path})
        log.info("connection refused", status=response.status_code, detail=refusal.detail, request_id=request_id)
        fields = [*response.raw_headers, (ID_HEADER, request_id.encode()), (b"connection", b"close")]
        head = b"".join(b"%b: %b\r\n" % field for field in fields)
        return STATUS_LINE[response.status_code] + head + b"\r\n" + bytes(response.body)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _advance(self) -> None:
        """The parser has come to the end of a head, or to a piece of a body."""
        self._advanced, self._unparsed = True, 0
        self._end_deadline()

    def _set_deadline(self) -> None:
        self._end_deadline()
        self._deadline = self.loop.call_later(self.timeout_keep_alive, self._overdue)

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _overdue(self) -> None:
        self._deadline = None
        if not self._answering:
            self.transport.close()


class AnswerTransport(Transport):
    """The way of one answer: its head waits for the first of its body, which nearly always follows at once.

    uvicorn writes them one by one and uvloop sends at once, so that they would be two packets.
    """

    def __init__(self, transport: Transport, loop: AbstractEventLoop) -> None:
        super().__init__()
        self._transport, self._loop = transport, loop
        self._held: bytes | None = None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._held is None:
            self._held = bytes(data)
            self._loop.call_soon(self._release)
        else:
            held, self._held = self._held, b""
            self._transport.write(held + data)

    def close(self) -> None:
        self._release()
        self._transport.close()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def _release(self) -> None:
        if self._held:
            self.write(b"")


class UntilClose:
    """For HTTP/1.0, which knows no chunks: an answer without a length goes out as it is, until the connection ends.

    uvicorn closes the connection after each answer to HTTP/1.0, and would send chunks even so.
    """

    def __init__(self, app: ASGIApp, cycle: RequestResponseCycle) -> None:
        self._app, self._cycle = app, cycle

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        unsized = False

        async def plain(message: Message) -> None:
            nonlocal unsized
            if message["type"] == "http.response.start":
                unsized = not any(name == b"content-length" for name, _ in message["headers"])
                if unsized:
                    self._cycle.chunked_encoding = False
            elif unsized:
                self._cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, plain)
