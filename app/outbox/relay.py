"""The relay: publishes stored events, at least once, each order's in their sequence."""

import time
from collections.abc import Sequence
from typing import Protocol

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from app.loop import Loop
from app.outbox import store
from app.outbox.store import Delivery, StoredEvent
from app.tasks.backoff import backoff
from app.tasks.settlement import printable

log = structlog.get_logger()


class Sink(Protocol):
    """Where events go. Publishing one twice must be harmless to whoever reads: the event's id stays the same."""

    async def publish(self, event: StoredEvent) -> None:
        """Raises when the event could not be handed over."""


class Rules(Protocol):
    """The `events` settings; seconds and counts."""

    @property
    def poll_interval(self) -> float: ...
    @property
    def batch(self) -> int: ...
    @property
    def lease(self) -> float: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def backoff_cap(self) -> float: ...
    @property
    def jitter(self) -> float: ...


class LogSink:
    """Writes each event into the log: the default, until there is somewhere else to send them."""

    async def publish(self, event: StoredEvent) -> None:
        log.info("event", type=event.type, event_id=event.event_id, order_id=event.order_id, sequence=event.sequence)


class Relay:
    """Publishes what the outbox holds. An event that fails too often is parked, and the order's later ones go on."""

    def __init__(self, engine: AsyncEngine, sink: Sink, rules: Rules, *, stalled_after: float) -> None:
        self._engine, self._sink, self._rules = engine, sink, rules
        self.loop = Loop("outbox relay", self._relay, stalled_after=stalled_after)

    async def _relay(self, loop: Loop) -> None:
        while not loop.stopping:
            loop.beat()
            loop.listen()
            until = time.monotonic() + self._rules.lease / 2
            events = await store.claim(self._engine, batch=self._rules.batch, lease=self._rules.lease)
            if events:
                await store.settle(self._engine, await self._publish(events, until, loop))
            else:
                await loop.rest(self._rules.poll_interval)

    async def _publish(self, events: Sequence[StoredEvent], until: float, loop: Loop) -> list[Delivery]:
        """Publish one after the other; what the first half of the lease does not suffice for is given back."""
        deliveries = []
        for event in events:
            loop.beat()
            if loop.stopping or time.monotonic() > until:
                deliveries.append(Delivery(event, "PENDING", last_error=None))
            else:
                deliveries.append(await self._deliver(event))
        return deliveries

    async def _deliver(self, event: StoredEvent) -> Delivery:
        try:
            await self._sink.publish(event)
        except Exception as error:
            reason = printable(f"{type(error).__name__}: {error}")
            if event.attempts >= self._rules.max_attempts:
                log.exception("event parked", event_id=event.event_id, order_id=event.order_id, reason=reason)
                return Delivery(event, "PARKED", last_error=reason)
            delay = backoff(event.attempts, cap=self._rules.backoff_cap, jitter=self._rules.jitter)
            return Delivery(event, "PENDING", delay, reason)
        return Delivery(event, "PUBLISHED")
