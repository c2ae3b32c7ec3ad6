"""The relay: publishes stored events, at least once, each order's in their sequence."""

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager

import structlog
from opentelemetry.trace import Span, SpanKind
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.contextvars import bound_contextvars

from app.loop import Loop
from app.observability.traces import continued, trace_of
from app.outbox import store
from app.outbox.sink import Sink
from app.outbox.store import Delivery, StoredEvent
from app.resilience import Broken, BulkheadFull, CircuitOpen, Fault, Refused
from app.settings import EventSettings
from app.tasks.backoff import backoff
from app.tasks.settlement import printable
from app.transaction import autocommit

log = structlog.get_logger()

GATHER = 0.1
"""Seconds between two claims, in which events gather: a batch of them costs hardly more than one."""

SETTLE_MARGIN = 1.0
"""Seconds of the lease that are kept for settling."""


class Relay:
    """Publishes what the outbox holds, a batch at a time: one claim, publishing side by side, one settle.

    The batches follow one another at once as long as they are full, else every GATHER seconds, until one is empty.

    A batch holds at most one event of an order, its eldest unpublished one, so that nothing overtakes anything. An
    event that cannot be published is parked, and its order's later ones go on.
    """

    def __init__(self, engine: AsyncEngine, sink: Sink, rules: EventSettings, *, stalled_after: float) -> None:
        self._engine, self._sink, self._rules = autocommit(engine), sink, rules
        self.loop = Loop("outbox relay", self._relay, stalled_after=stalled_after + rules.publish_timeout)
        self._lanes: set[asyncio.Task[None]] = set()
        self._held_until = 0.0

    async def drain(self, within: float) -> None:
        """Let what is on its way arrive; what still is after `within` seconds is cut and given back."""
        self.loop.stop()
        if self._lanes:
            _, late = await asyncio.wait(self._lanes, timeout=within)
            for lane in late:
                lane.cancel()
        await self.loop.stopped(SETTLE_MARGIN)

    async def _relay(self, loop: Loop) -> None:
        while not loop.stopping:
            loop.beat()
            loop.listen()
            if (held := self._held_until - time.monotonic()) > 0:
                await loop.rest(min(held, self._rules.poll_interval))
                continue
            until = time.monotonic() + self._rules.lease - SETTLE_MARGIN
            claim = await store.claim(self._engine, batch=self._rules.batch, lease=self._rules.lease)
            deliveries = await self._publish(claim.events, until)
            if deliveries:
                await self._settle(deliveries)
            if not claim.events:
                due = math.inf if claim.next_due is None else claim.next_due
                await loop.rest(min(due, self._rules.poll_interval))
            if len(claim.events) < self._rules.batch:
                await asyncio.sleep(GATHER)

    async def _publish(self, events: Sequence[StoredEvent], until: float) -> list[Delivery]:
        """Publish in as many lanes as the rules allow; an event that comes to no end there is given back."""
        waiting, deliveries = iter(events), {event.event_id: store.given_back(event) for event in events}

        async def lane() -> None:
            while self._may_begin(until) and (event := next(waiting, None)) is not None:
                self.loop.beat()
                deliveries[event.event_id] = await self._deliver(event)

        async with asyncio.TaskGroup() as group:
            self._lanes = {group.create_task(lane()) for _ in range(min(self._rules.concurrency, len(events)))}
        return list(deliveries.values())

    def _may_begin(self, until: float) -> bool:
        """Whether there is nothing against another event: it has to be over before the lease is."""
        now = time.monotonic()
        return not self.loop.stopping and now >= self._held_until and now + self._rules.publish_timeout <= until

    async def _deliver(self, event: StoredEvent) -> Delivery:
        if event.attempts > self._rules.max_attempts:
            lost = f"lost: no report came back from the last of {self._rules.max_attempts} attempts"
            return Delivery(event, "PARKED", event.attempts - 1, last_error=lost)
        try:
            with bound_contextvars(**_names(event)), _span(event):
                async with asyncio.timeout(self._rules.publish_timeout):
                    await self._sink.publish(event)
        except (CircuitOpen, BulkheadFull) as refusal:
            self._held_until = time.monotonic() + (refusal.retry_after or 1.0)
            return store.given_back(event)
        except Exception as error:  # noqa: BLE001 - whatever it was, it is the event's own failure
            return self._failed(event, error)
        return Delivery(event, "PUBLISHED", event.attempts)

    def _failed(self, event: StoredEvent, error: Exception) -> Delivery:
        reason = _why(error, self._rules.publish_timeout)
        if isinstance(error, (Refused, Broken)) or event.attempts >= self._rules.max_attempts:
            return Delivery(event, "PARKED", event.attempts, last_error=reason)
        announced = error.retry_after if isinstance(error, Fault) else None
        delay = backoff(event.attempts, cap=self._rules.backoff_cap, jitter=self._rules.jitter, announced=announced)
        bug = None if isinstance(error, (Fault, TimeoutError)) else error
        log.warning("event not published", **_names(event), reason=reason, retry_in=round(delay, 1), exc_info=bug)
        return Delivery(event, "PENDING", event.attempts, delay, reason)

    async def _settle(self, deliveries: Sequence[Delivery]) -> None:
        held = await store.settle(self._engine, deliveries)
        for delivery in deliveries:
            if delivery.event.event_id not in held:
                log.warning("lease lost, the event is published again", **_names(delivery.event))
            elif delivery.status == "PARKED":
                log.error("event parked", **_names(delivery.event), reason=delivery.last_error)


def _span(event: StoredEvent) -> AbstractContextManager[Span]:
    ids: dict[str, str | int] = {"event_id": event.event_id, "order_id": event.order_id, "attempt": event.attempts}
    return continued(f"publish {event.type}", event.traceparent, ids, kind=SpanKind.PRODUCER)


def _why(error: Exception, timeout: float) -> str:
    """A reason for people; its first word, up to the colon, is for machines."""
    match error:
        case Fault():
            reason = f"{error.kind}: {error}"
        case TimeoutError():
            reason = f"timeout: not published within {timeout:g} s"
        case _:
            reason = f"bug: {type(error).__name__}: {error}"
    return printable(reason)


def _names(event: StoredEvent) -> dict[str, str | int]:
    return {
        "type": event.type,
        "event_id": event.event_id,
        "order_id": event.order_id,
        "sequence": event.sequence,
        "attempt": event.attempts,
        **trace_of(event.traceparent),
    }
