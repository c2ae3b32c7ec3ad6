"""LISTEN on a connection of its own. What is heard is a hint: whoever acts on it also looks by himself now and then."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import asyncpg
import structlog

from app.loop import Loop

log = structlog.get_logger()

PROBE_INTERVAL, PROBE_TIMEOUT = 10.0, 5.0

Hear = Callable[[str], None]


class Listener:
    """Keeps one connection that listens on `channels`, each with the function that hears its payloads.

    `connect` opens the connection. After every connect, the first included, `catch_up` is called once: something may
    have been said while nobody listened. A peer that vanished silently is noticed by a probe.
    """

    def __init__(
        self,
        connect: Callable[[], Awaitable[asyncpg.Connection]],
        channels: Mapping[str, Hear],
        catch_up: Callable[[], None],
    ) -> None:
        self._connect, self._channels, self._catch_up = connect, channels, catch_up
        self.loop = Loop("listener", self._listen, stalled_after=PROBE_INTERVAL + 2 * PROBE_TIMEOUT)

    async def _listen(self, loop: Loop) -> None:
        try:
            async with asyncio.timeout(PROBE_TIMEOUT):
                connection = await self._connect()
            try:
                await self._hear(connection, loop)
            finally:
                connection.terminate()
        except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            log.warning("listener lost its connection, polling goes on", error=repr(error))

    async def _hear(self, connection: asyncpg.Connection, loop: Loop) -> None:
        def heard(_connection: object, _pid: int, channel: str, payload: str) -> None:
            self._channels[channel](payload)

        connection.add_termination_listener(lambda _connection: loop.ring())
        async with asyncio.timeout(PROBE_TIMEOUT):
            for channel in self._channels:
                await connection.add_listener(channel, heard)
        self._catch_up()
        while not loop.stopping:
            loop.beat()
            loop.listen()
            await connection.execute("SELECT 1", timeout=PROBE_TIMEOUT)
            await loop.rest(PROBE_INTERVAL)
