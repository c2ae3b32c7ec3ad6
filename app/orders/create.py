"""Taking orders in: each order, its first task, its first event and its client's key in one transaction."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app.orders import idempotency, repository
from app.orders.idempotency import Answered, Key
from app.orders.moves import Moved, StepQueues, tell
from app.orders.order import Item


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
    """Save all orders in one transaction; an order whose key stands in its way is answered and harms no other."""
    async with engine.begin() as conn:
        repeats = await idempotency.claim(conn, [p.key for p in placements])
        fresh = [p for p, repeat in zip(placements, repeats, strict=True) if repeat is None]
        created = iter(await _write(conn, steps, fresh))
        answered = await idempotency.find(conn, [key for key in repeats if key is not None])
    return [next(created) if key is None else _repeated(key, answered) for key in repeats]


async def _write(conn: AsyncConnection, steps: StepQueues, placements: Sequence[Placement]) -> list[Created]:
    if not placements:
        return []
    orders = await repository.insert(conn, [(p.customer_id, p.items) for p in placements])
    moves = [Moved(o, o.accepted(), p.traceparent) for o, p in zip(orders, placements, strict=True)]
    task_ids = await tell(conn, moves, steps)
    created = [Created(o.id, task_ids[o.id]) for o in orders]
    made = {p.key: (c.order_id, c.task_id) for p, c in zip(placements, created, strict=True) if p.key}
    await idempotency.answer(conn, made)
    return created


def _repeated(key: Key, answered: Mapping[tuple[str, str], Answered]) -> Answer:
    found = answered.get(key.id)
    if found is None:
        return KeyInFlight(key.name)
    if found.fingerprint != key.fingerprint:
        return KeyReused(key.name)
    return Created(found.order_id, found.task_id, replayed=True)
