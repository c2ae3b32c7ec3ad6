"""Load on an HTTP server: connections that each send the next request as soon as the last one is answered."""

import asyncio
import time
from dataclasses import dataclass, field
from statistics import quantiles
from urllib.parse import urlsplit


@dataclass
class Load:
    """What the server answered: seconds that each answer took, and how many were not 202."""

    seconds: float
    latencies: list[float] = field(default_factory=list)
    failures: int = 0

    @property
    def rate(self) -> float:
        return (len(self.latencies) - self.failures) / self.seconds

    @property
    def p99(self) -> float:
        return quantiles(self.latencies, n=100)[-1]


class _Connection(asyncio.Protocol):
    """Asks for the same thing again and again, and reads no more of an answer than where it ends."""

    def __init__(self, request: bytes, load: Load, until: float) -> None:
        self._request, self._load, self._until = request, load, until
        self._answer = b""
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._send()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            return
        now = time.perf_counter()
        self._load.latencies.append(now - self._sent)
        self._load.failures += b" 202 " not in head[:13]
        self._answer = b""
        if now < self._until:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.over.done():
            self.over.set_result(None)

    def _send(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(self._request)


async def post(url: str, body: bytes, seconds: float, connections: int = 32) -> Load:
    """Post the JSON `body` over so many connections for so many seconds."""
    parts = urlsplit(url)
    head = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    assert parts.hostname is not None
    assert parts.port is not None
    load, loop = Load(seconds), asyncio.get_running_loop()
    until = time.perf_counter() + seconds
    opened = [
        await loop.create_connection(lambda: _Connection(head.encode() + body, load, until), parts.hostname, parts.port)
        for _ in range(connections)
    ]
    async with asyncio.timeout(seconds + 30):
        for _, connection in opened:
            await connection.over
    return load
