"""Servers on real sockets that answer as badly as peers do."""

import asyncio
import gzip
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

NO_LINGER = struct.pack("ii", 1, 0)


@dataclass(frozen=True)
class Received:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Peer:
    """A running server: where it is, what it received, and how many connections it saw."""

    url: str
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    async def has_received(self, requests: int = 1) -> None:
        """Return once so many requests have arrived."""
        while len(self.received) < requests:
            await self._news()

    async def has_connected(self) -> None:
        """Return once a connection was accepted."""
        while not self.connections:
            await self._news()

    async def _news(self) -> None:
        self.news.clear()
        await self.news.wait()

    @property
    def keys(self) -> list[str | None]:
        return [request.headers.get("idempotency-key") for request in self.received]


@asynccontextmanager
async def serve(answer: Answer, tls: ssl.SSLContext | None = None) -> AsyncIterator[Peer]:
    """Answer every request of every connection with `answer`, until the context closes."""
    busy: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        busy[task] = writer
        peer.connections += 1
        peer.news.set()
        try:
            while not writer.is_closing():
                request = await _receive(reader)
                peer.received.append(request)
                peer.news.set()
                await answer(request, writer)
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            del busy[task]
            writer.transport.abort()

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=tls)
    host, port = server.sockets[0].getsockname()
    peer = Peer(f"{'https' if tls else 'http'}://{'localhost' if tls else host}:{port}")
    try:
        yield peer
    finally:
        server.close()
        tasks = list(busy)
        for task, writer in busy.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()


async def _receive(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method, path, headers, body)


def response(body: bytes = b"", status: str = "200 OK", *, length: int | None = None, **headers: str) -> bytes:
    """The bytes of an answer; header names are written with underscores."""
    fields = {"Content-Length": str(len(body) if length is None else length), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status}\r\n{head}\r\n".encode() + body


def say(answer: bytes) -> Answer:
    async def written(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    return written


async def hang(_: Received, __: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def close(_: Received, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def reset(_: Received, writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    writer.transport.abort()


def flood(head: bytes, piece: bytes, pause: float = 0.0) -> Answer:
    """Write `head`, then `piece` for ever."""

    async def flooded(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause)

    return flooded


def cut_short(head: bytes) -> Answer:
    """Write `head` and hang up."""

    async def cut(_: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        await writer.drain()
        writer.close()

    return cut


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: application/json\r\n\r\n"

drip_body = flood(response(length=1_000_000), b" ", pause=0.05)
drip_headers = flood(b"HTTP/1.1 200 OK\r\nX-Long: ", b"a", pause=0.05)
drip_status = flood(b"HTTP/1.1 ", b"2", pause=0.05)
endless_continue = flood(b"", b"HTTP/1.1 100 Continue\r\n\r\n", pause=0.001)
endless_headers = flood(b"HTTP/1.1 200 OK\r\n", b"X-Another: one\r\n")
endless_header = flood(b"HTTP/1.1 200 OK\r\nX-Long: ", b"a" * 1_000)
endless_body = flood(CHUNKED, b"4000\r\n" + b" " * 0x4000 + b"\r\n")
endless_trailers = flood(CHUNKED + b"2\r\n{}\r\n0\r\n", b"X-Another: one\r\n")
endless_chunk_extension = flood(CHUNKED + b"2;", b"a" * 1_000)
gzip_bomb = say(response(gzip.compress(b" " * 30_000_000, compresslevel=1), Content_Encoding="gzip"))
