"""A TCP proxy of our own between the service and what it talks to, which breaks connections on purpose."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal
from urllib.parse import parse_qs, urlsplit

Way = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Fate = Literal["passes", "cut before", "cut after"]

TRANSACTION = (b"BEGIN", b"COMMIT", b"ROLLBACK")
NO_LINGER = struct.pack("ii", 1, 0)


class Proxy:
    """Passes everything on until told otherwise.

    `refusing`: new connections are reset. `commits` counts the COMMITs that came by; `fate` says what becomes of each:
    it passes, the connection is cut before PostgreSQL sees it, or once PostgreSQL has carried it out, so that the
    effect is kept and the answer lost. `statements` counts those that are neither BEGIN nor its end; `opened` counts
    all connections, `most` those open at the same time.
    """

    def __init__(self, upstream: Callable[[], Awaitable[Way]]) -> None:
        self._upstream = upstream
        self._links: set[Link] = set()
        self._passing = asyncio.Event()
        self._passing.set()
        self.port = 0
        self.opened = self.most = 0
        self.refusing = False
        self.commits = 0
        self.statements = 0
        self.fate: Callable[[int], Fate] = lambda _number: "passes"

    @property
    def open(self) -> int:
        """Connections open now."""
        return len(self._links)

    def cut(self) -> None:
        """Reset every connection, as a firewall or a failover does."""
        for link in tuple(self._links):
            link.reset()

    def hold(self) -> None:
        """Let nothing pass in either direction, and close nothing: the peer has silently vanished."""
        self._passing.clear()

    def pass_on(self) -> None:
        self._passing.set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.opened += 1
        link = Link(writer)
        if self.refusing:
            link.reset()
            return
        self._links.add(link)
        self.most = max(self.most, self.open)
        try:
            await self._passing.wait()
            server_reader, link.server = await self._upstream()
            async with asyncio.TaskGroup() as both:
                both.create_task(self._requests(link, reader))
                both.create_task(self._answers(link, server_reader))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            link.reset()
            self._links.discard(link)

    async def _requests(self, link: "Link", reader: asyncio.StreamReader) -> None:
        assert link.server is not None
        while data := await reader.read(65_536):
            await self._passing.wait()
            fate: Fate = "passes"
            bound, simple = data.startswith(b"B"), data.startswith(b"Q")
            self.statements += bound or (simple and not any(word in data for word in TRANSACTION))
            if simple and b"COMMIT" in data:
                self.commits += 1
                fate = self.fate(self.commits)
            if fate == "cut before":
                break
            link.doomed = fate == "cut after"
            link.server.write(data)
            await link.server.drain()
        link.reset()

    async def _answers(self, link: "Link", reader: asyncio.StreamReader) -> None:
        while data := await reader.read(65_536):
            await self._passing.wait()
            if link.doomed:
                break
            link.client.write(data)
            await link.client.drain()
        link.reset()


class Link:
    """A connection of a client and the one behind it."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.client = client
        self.server: asyncio.StreamWriter | None = None
        self.doomed = False

    def reset(self) -> None:
        for side in (self.client, self.server):
            if side is not None and not side.transport.is_closing():
                side.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
                side.transport.abort()


@asynccontextmanager
async def proxy_to(upstream: Callable[[], Awaitable[Way]]) -> AsyncIterator[Proxy]:
    proxy = Proxy(upstream)
    handling: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        handling.add(task)
        try:
            await proxy.handle(reader, writer)
        finally:
            handling.discard(task)

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        for task in tuple(handling):
            task.cancel()
        await asyncio.gather(*handling, return_exceptions=True)


@asynccontextmanager
async def proxy_to_postgres(dsn: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy to the server of the DSN, and the DSN that leads through it."""
    url = urlsplit(dsn)
    directory = parse_qs(url.query).get("host", [""])[0]

    async def upstream() -> Way:
        if directory:
            return await asyncio.open_unix_connection(f"{directory}/.s.PGSQL.5432")
        return await asyncio.open_connection(url.hostname, url.port or 5432)

    async with proxy_to(upstream) as proxy:
        user = url.netloc.rpartition("@")[0]
        through = url._replace(netloc=f"{user}@127.0.0.1:{proxy.port}", query="sslmode=disable")
        yield proxy, through.geturl()


@asynccontextmanager
async def proxy_to_url(url: str) -> AsyncIterator[tuple[Proxy, str]]:
    """A proxy to an HTTP server, and the address that leads through it."""
    parts = urlsplit(url)
    async with proxy_to(lambda: asyncio.open_connection(parts.hostname, parts.port)) as proxy:
        yield proxy, parts._replace(netloc=f"127.0.0.1:{proxy.port}").geturl()
