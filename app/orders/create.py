"""Taking orders in: each order, its first task, its first event and its client's key with one statement."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine

from app.observability import metrics
from app.orders import idempotency, repository
from app.orders.idempotency import Answered, Key
from app.orders.moves import StepQueues
from app.orders.order import NOT_SAVED, Item, Order, OrderStatus
from app.orders.repository import NewOrder
from app.orders.snapshot import dump_payload
from app.transaction import transact


class Placement(NamedTuple):
    """A request to take an order in; with a `key`, however often it comes, it makes one order."""

    customer_id: str
    items: tuple[Item, ...]
    traceparent: str | None = None
    key: Key | None = None


class Created(NamedTuple):
    """`replayed`: an earlier request with the same key and body has made it."""

    order_id: int
    task_id: int
    replayed: bool = False


class KeyInFlight(Exception):
    """A request with this key is under way: whether it makes an order will be known when it ends."""


class KeyReused(Exception):
    """The key came with another body before."""


Answer = Created | KeyInFlight | KeyReused


async def create_orders(engine: AsyncEngine, steps: StepQueues, placements: Sequence[Placement]) -> list[Answer]:
    """Save all orders with one statement; one whose key stands in its way is answered and harms no other."""
    orders = [Order(NOT_SAVED, p.customer_id, p.items) for p in placements]
    new = [NewOrder(dump_payload(o), p.traceparent, p.key) for o, p in zip(orders, placements, strict=True)]
    opening = orders[0].accepted()

    def place(conn: Connection) -> list[Answer]:
        made = repository.place(conn, new, opening, steps[opening.type].table)
        repeated = [p.key for p, ids in zip(placements, made, strict=True) if p.key and not ids]
        answered = idempotency.find(conn, repeated)
        return [Created(*ids) if ids else _repeated(p.key, answered) for p, ids in zip(placements, made, strict=True)]

    answers = await transact(engine, place)
    metrics.orders_entered(OrderStatus.ACCEPTED, sum(isinstance(a, Created) and not a.replayed for a in answers))
    return answers


def _repeated(key: Key | None, answered: Mapping[tuple[str, str], Answered]) -> Answer:
    assert key is not None
    found = answered.get(key.id)
    if found is None:
        return KeyInFlight(key.name)
    if found.fingerprint != key.fingerprint:
        return KeyReused(key.name)
    return Created(found.order_id, found.task_id, replayed=True)
