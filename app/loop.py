"""A background loop that outlives its own failures and can be asked whether it is alive."""

import asyncio
import time
from collections.abc import Awaitable, Callable

import structlog

from app.observability import metrics

log = structlog.get_logger()

RESTART_FIRST, RESTART_CAP = 0.1, 5.0
CLEANUP = 2.0


class Loop:
    """Runs `body` in a task of its own and starts it again, with backoff, whenever it ends before `stop` is called.

    `body` runs until `stopping` is true and calls `beat` on every turn. The loop counts as alive while its last beat
    is younger than `stalled_after` seconds and its body runs.
    """

    def __init__(self, name: str, body: Callable[["Loop"], Awaitable[None]], *, stalled_after: float) -> None:
        self.name, self._body, self._stalled_after = name, body, stalled_after
        self.stopping = False
        self.restarts = 0
        self._last_failure: type[Exception] | None = None
        self._beaten = time.monotonic()
        self._bell, self._stop_asked = asyncio.Event(), asyncio.Event()
        self._running: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None

    @property
    def started(self) -> bool:
        return self._keeper is not None

    @property
    def alive(self) -> bool:
        running = self._running is not None and not self._running.done()
        return running and time.monotonic() - self._beaten < self._stalled_after

    def start(self) -> None:
        metrics.watch_loop(self.name, lambda: not (self.alive or self.stopping))
        self._keeper = asyncio.create_task(self._keep(), name=f"{self.name} keeper")

    def beat(self) -> None:
        self._beaten = time.monotonic()

    def ring(self) -> None:
        """End the current or the next `rest` at once."""
        self._bell.set()

    def listen(self) -> None:
        """From here on a `ring` is remembered: call it before looking for work, so that none slips through."""
        self._bell.clear()

    async def rest(self, seconds: float) -> None:
        """Sleep until `seconds` have passed, or someone rings."""
        await _within(seconds, self._bell)

    def stop(self) -> None:
        """Ask the body to end after its current turn."""
        self.stopping = True
        self._stop_asked.set()
        self.ring()

    async def stopped(self, within: float) -> None:
        """Wait for the end that `stop` asked for; after `within` seconds the body is cancelled.

        It may clean up for CLEANUP seconds more: what it needs for that may have gone silent.
        """
        self.stop()
        if self._keeper is None:
            return
        _, late = await asyncio.wait({self._keeper}, timeout=within)
        if late and self._running is not None:
            self._running.cancel()
            await asyncio.wait(late, timeout=CLEANUP)

    async def _keep(self) -> None:
        pause = RESTART_FIRST
        while not self.stopping:
            began = time.monotonic()
            self.beat()
            self._running = asyncio.ensure_future(self._guarded())
            await asyncio.wait({self._running})
            if self.stopping:
                return
            pause = RESTART_FIRST if time.monotonic() - began > RESTART_CAP else min(pause * 2, RESTART_CAP)
            self.restarts += 1
            metrics.loop_restarts.labels(self.name).inc()
            log.error("loop ended, starting it again", loop=self.name, pause=pause, restarts=self.restarts)
            await _within(pause, self._stop_asked)  # not the bell: work that waits must not shorten the backoff

    async def _guarded(self) -> None:
        try:
            await self._body(self)
        except Exception as error:
            news = type(error) is not self._last_failure
            self._last_failure = type(error)
            log.error("loop failed", loop=self.name, error=repr(error), exc_info=error if news else None)  # noqa: TRY400


async def _within(seconds: float, event: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        pass
