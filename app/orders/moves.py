"""Writing moves: the order, its event and the task of the step that begins with it, in the caller's transaction."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection

from app.observability import metrics
from app.orders import repository
from app.orders.order import Event, Order, OrderStatus
from app.orders.snapshot import dump_details, dump_payload
from app.outbox import store
from app.tasks.queue import NewTask, TaskQueue

StepQueues = Mapping[str, TaskQueue]
"""By the type of the event that begins a step: the queue of its tasks."""


class Moved(NamedTuple):
    """An order after its move, the event that tells of it, and the trace it belongs to."""

    order: Order
    event: Event
    traceparent: str | None = None


def save_moves(conn: Connection, moves: Sequence[Moved], steps: StepQueues) -> None:
    """Save moved orders, and all that their moves bring about."""
    ages = repository.save(conn, [m.order for m in moves])
    tell(conn, moves, steps)
    for order, event, traceparent in moves:
        if order.status is OrderStatus.CONFIRMED and event.type == "order.confirmed":
            metrics.order_confirmed(ages[order.id], traceparent)


def tell(conn: Connection, moves: Sequence[Moved], steps: StepQueues) -> None:
    """Write the events and enqueue the steps that begin with them."""
    for event_type, queue in steps.items():
        if begins := [m for m in moves if m.event.type == event_type]:
            new = [NewTask(m.order.id, dump_payload(m.order), m.traceparent) for m in begins]
            queue.enqueue(conn, new)
    events = [store.NewEvent(e.order_id, e.sequence, e.type, dump_details(e.data), trace) for _, e, trace in moves]
    store.add(conn, events)
    for order, event, _ in moves:
        if event.data["previous"] != order.status:
            metrics.orders_entered(order.status)
