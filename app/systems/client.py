"""One system's HTTP client: httpx over aiohttp, with nothing left to a default and nothing kept between calls."""

import asyncio
import ssl
from contextlib import aclosing
from functools import cache, partial

import aiohttp
import httpx
from aiohttp.client_proto import ResponseHandler
from httpx_aiohttp import AiohttpTransport

from app.observability.traces import carry
from app.orders.ports import InvalidAnswer, SystemUnavailable
from app.settings import ClientSettings
from app.systems.errors import check_status, port_errors
from app.systems.request import Request

KEEP_ALIVE_SECONDS = 15.0
MAX_HEADERS = 100
MAX_HEADER_BYTES = 8_190

HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "orders"}


class Client:
    """The connections to one system, at most `settings.pool_size` of them (ISO-1, ISO-X2).

    `tls` says whom to trust with https; by default the authorities of the certifi package. It stands right on httpx's
    transport: cookies, redirects and proxies, which httpx's own client adds, are not wanted and cost half of a call.
    """

    def __init__(self, system: str, settings: ClientSettings, tls: ssl.SSLContext | None = None) -> None:
        self.system = system
        self._max_bytes = settings.max_response_bytes
        tls = tls or _public_authorities()
        self._connector = _connector(settings.pool_size, tls)
        self._session = _session(self._connector)
        self._transport = AiohttpTransport(verify=tls, client=self._session)
        self._base_url = settings.base_url.rstrip("/")
        connect, read = settings.connect_timeout, settings.read_timeout
        self._timeout = httpx.Timeout(connect=connect, pool=connect, read=read, write=read).as_dict()

    @property
    def connections_in_use(self) -> int:
        return len(self._connector._acquired)  # noqa: SLF001  aiohttp has no public count

    async def send(self, request: Request) -> bytes:
        """Make the call once and return the body of its 2xx answer.

        Raises SystemUnavailable, SystemRefused or InvalidAnswer, whatever the library raised.
        """
        if self._session.closed:
            raise SystemUnavailable(
                self.system, f"{request.operation}: the client is closed", kind="closed", call_made=False
            )
        with port_errors(self.system, request.operation):
            async with aclosing(await self._transport.handle_async_request(self._written(request))) as response:
                check_status(self.system, request.operation, response.status_code, response.headers)
                return await self._body(request.operation, response)

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _written(self, request: Request) -> httpx.Request:
        """The request as it goes over the wire, with a deadline for each of its parts.

        Its body is given as a stream: httpx then leaves Host and Content-Length to aiohttp, which writes them anyway.
        """
        written = httpx.Request(
            request.method,
            self._base_url + request.path,
            headers=_headers(request),
            stream=httpx.ByteStream(_content(request)),
            extensions={"timeout": self._timeout},
        )
        written.read()
        return written

    async def _body(self, operation: str, response: httpx.Response) -> bytes:
        """Read the body as it comes over the wire: we ask for no compression, and so nothing can inflate."""
        encoding = response.headers.get("content-encoding", "identity")
        if encoding.lower() != "identity":
            raise InvalidAnswer(self.system, f"{operation}: compressed, though asked not to", kind="compressed")
        body = bytearray()
        assert isinstance(response.stream, httpx.AsyncByteStream)
        async for chunk in response.stream:
            body += chunk
            if len(body) > self._max_bytes:
                raise InvalidAnswer(self.system, f"{operation}: over {self._max_bytes} bytes", kind="too_large")
        return bytes(body)


class _SilentConnection(ResponseHandler):
    """A connection that is reused only if the peer kept silent since its last answer.

    aiohttp would take what came unasked for the answer to the next call, and each later answer for that to the call
    after it: another order's payment.
    """

    def is_connected(self) -> bool:
        return super().is_connected() and not self.should_close


@cache
def _public_authorities() -> ssl.SSLContext:
    return httpx.create_ssl_context(trust_env=False)


def _connector(limit: int, tls: ssl.SSLContext) -> aiohttp.TCPConnector:
    connector = aiohttp.TCPConnector(limit=limit, keepalive_timeout=KEEP_ALIVE_SECONDS, ssl=tls)
    made = partial(_SilentConnection, loop=asyncio.get_running_loop())
    connector._factory = made  # type: ignore[assignment]  # noqa: SLF001  there is no public way
    return connector


def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    """A session without cookies, and without aiohttp's own repetition of GET and PUT on a lost connection (RE-X4)."""
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        max_headers=MAX_HEADERS,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
    )
    session._retry_connection = False  # noqa: SLF001  there is no public way
    return session


def _content(request: Request) -> bytes:
    return b"" if request.body is None else request.body.model_dump_json(by_alias=True, exclude_none=True).encode()


def _headers(request: Request) -> dict[str, str]:
    headers = HEADERS.copy()
    if request.body is not None:
        headers["Content-Type"] = "application/json"
    if request.key is not None:
        headers["Idempotency-Key"] = request.key
    return carry(headers)
