import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from app.resilience.errors import BulkheadFull
from app.resilience.events import BulkheadRejected, Report, ignore
from app.resilience.settings import BulkheadSettings

T = TypeVar("T")


class Bulkhead:
    """At most `capacity` calls to one system at once, each in its caller's own task (BH-1, BH-2)."""

    def __init__(self, system: str, capacity: int, settings: BulkheadSettings, report: Report = ignore) -> None:
        self.system = system
        self.capacity = capacity
        self.in_use = 0
        self.waiting = 0
        self._settings = settings
        self._report = report
        self._slots = asyncio.Semaphore(capacity)

    async def call(self, fn: Callable[[], Awaitable[T]], *, within: float) -> T:
        """Run `fn` in a slot, waited for at most `within` seconds and never longer than the settings allow.

        Raises BulkheadFull: at once if there is nothing to wait for, at the end of the wait otherwise.
        """
        await self._enter(min(within, self._settings.wait))
        self.in_use += 1
        try:
            return await fn()
        finally:
            self.in_use -= 1
            self._slots.release()

    async def _enter(self, wait: float) -> None:
        if not self._slots.locked():
            await self._slots.acquire()  # returns without suspending
        elif wait <= 0 or self.waiting >= self._settings.queue:
            raise self._full()
        else:
            await self._queue(wait)

    async def _queue(self, wait: float) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout(wait):
                await self._slots.acquire()
        except TimeoutError:
            raise self._full() from None
        finally:
            self.waiting -= 1

    def _full(self) -> BulkheadFull:
        self._report(BulkheadRejected(self.system))
        return BulkheadFull(self.system, f"{self.in_use} of {self.capacity} calls in flight, {self.waiting} waiting")
