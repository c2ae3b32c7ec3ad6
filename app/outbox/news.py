"""News of orders for those who wait for it in this process: one look at the outbox serves them all."""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sqlalchemy.ext.asyncio import AsyncEngine

from app.loop import Loop
from app.outbox import store
from app.outbox.store import StoredEvent
from app.settings import ApiSettings

BACKLOG = 100
"""Events that wait for one client at most; orders rarely have ten."""


class TooManyWatches(Exception):
    """As many clients as may watch orders do so."""


class Watch:
    """One client's wait for news of one order; `seen` is the sequence of the last event that was put aside for it.

    It is `over` when the service stops, or when more than BACKLOG events would wait for a client that does not take
    them: it comes again, and says how far it got.
    """

    def __init__(self, order_id: int, seen: int) -> None:
        self.order_id, self.seen = order_id, seen
        self.over = False
        self._events: list[StoredEvent] = []
        self._bell = asyncio.Event()

    async def events(self, within: float) -> list[StoredEvent]:
        """The next events, in their sequence; none when nothing comes within so many seconds, or this is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await self._bell.wait()
        events, self._events = self._events, []
        if not self.over:
            self._bell.clear()
        return events

    def tell(self, events: list[StoredEvent]) -> None:
        news = [event for event in events if event.sequence > self.seen]
        if not news or self.over:
            return
        if len(self._events) + len(news) > BACKLOG:
            self.end()
            return
        self._events += news
        self.seen = news[-1].sequence
        self._bell.set()

    def end(self) -> None:
        self.over = True
        self._bell.set()


class News:
    """Looks for news of all watched orders when rung, and every `poll_interval` seconds: that is the guarantee.

    Who waits holds no connection. After a look there is none for `news_pause` seconds: whatever happens meanwhile,
    anywhere, shares the next one.
    """

    def __init__(self, engine: AsyncEngine, rules: ApiSettings, *, stalled_after: float) -> None:
        self._engine, self._rules = engine, rules
        self._watches: set[Watch] = set()
        self._closed = False
        self.loop = Loop("news", self._tell, stalled_after=stalled_after)

    @property
    def watches(self) -> int:
        return len(self._watches)

    @contextmanager
    def watch(self, order_id: int, seen: int) -> Iterator[Watch]:
        """Watch the order for events after the sequence number `seen`; raises TooManyWatches."""
        if len(self._watches) >= self._rules.max_streams:
            raise TooManyWatches
        watch = Watch(order_id, seen)
        if self._closed:
            watch.end()
        self._watches.add(watch)
        self.loop.ring()  # something may have happened since the caller looked
        try:
            yield watch
        finally:
            self._watches.discard(watch)

    def close(self) -> None:
        """End all watches at once, also those that begin later: the service is about to stop."""
        self._closed = True
        for watch in self._watches:
            watch.end()
        self.loop.stop()

    async def _tell(self, loop: Loop) -> None:
        while not loop.stopping:
            loop.beat()
            loop.listen()
            if self._watches:
                await self._look()
                await asyncio.sleep(self._rules.news_pause)
            await loop.rest(self._rules.poll_interval)

    async def _look(self) -> None:
        seen: dict[int, int] = {}
        for watch in self._watches:
            seen[watch.order_id] = min(watch.seen, seen.get(watch.order_id, watch.seen))
        async with self._engine.connect() as conn:
            found = await store.since(conn, seen, most=BACKLOG + 1)
        news: dict[int, list[StoredEvent]] = defaultdict(list)
        for event in found:
            news[event.order_id].append(event)
        for watch in tuple(self._watches):
            watch.tell(news[watch.order_id])
