"""Following an order: what has happened to it, and waiting for what happens next."""

import json
import time
from collections.abc import Collection
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncEngine

from app.orders.order import Order, OrderStatus
from app.orders.read import find_order
from app.orders.repository import OrderRecord
from app.orders.snapshot import dump_details
from app.outbox import store
from app.outbox.news import BACKLOG, News
from app.outbox.store import StoredEvent

STATE = "order.state"
"""The type of the event that tells an order's state where the event that brought it there is no longer kept."""


class History(NamedTuple):
    """An order as it stands, and its events after those that the client has."""

    order: Order
    events: list[StoredEvent]

    @property
    def known(self) -> bool:
        """Whether the client has all events that there will be."""
        return not self.events and self.order.status.final


async def read_history(
    engine: AsyncEngine, order_id: int, seen: int, customers: Collection[str] | None
) -> History | None:
    """The order and at most BACKLOG of its events after the sequence number `seen`.

    None when there is no such order, or when it belongs to none of `customers`, if these are given. When its last
    event is no longer kept, its state is told in its place.
    """
    async with engine.connect() as conn:
        record = await find_order(conn, order_id, customers)
        if record is None:
            return None
        events = await store.since(conn, {order_id: seen}, BACKLOG)
    last = events[-1].sequence if events else seen
    if last < record.order.version and len(events) < BACKLOG:
        events.append(_state(record))
    return History(record.order, events)


def is_last(event: StoredEvent) -> bool:
    """Whether the order has come to its end with this event; then others follow only if an operator retries a step."""
    return OrderStatus(json.loads(event.data)["status"]).final


async def wait_for_move(news: News, order: Order, within: float, *, to_the_end: bool) -> None:
    """Return when the order has moved, `to_the_end` when it is final, at the latest after `within` seconds.

    Raises TooManyWatches.
    """
    until = time.monotonic() + within
    with news.watch(order.id, order.version) as watch:
        while not watch.over and (left := until - time.monotonic()) > 0:
            events = await watch.events(left)
            if events and (is_last(events[-1]) or not to_the_end):
                return


def _state(record: OrderRecord) -> StoredEvent:
    order = record.order
    told = {"status": order.status, **order.details} | ({"reason": order.reason} if order.reason else {})
    return StoredEvent(
        event_id=f"{order.id}-{order.version}",
        position=0,
        order_id=order.id,
        sequence=order.version,
        type=STATE,
        data=dump_details(told),
        occurred_at=record.updated_at,
        traceparent=None,
        attempts=0,
        lease_token=0,
    )
