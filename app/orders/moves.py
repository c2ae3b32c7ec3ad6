"""Writing moves: the order, its event and the task of the step that begins with it, in the caller's transaction."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from app.observability import metrics
from app.orders import repository
from app.orders.order import OrderStatus
from app.orders.repository import Moved
from app.orders.snapshot import dump_payload
from app.tasks.queue import NewTask, TaskQueue

StepQueues = Mapping[str, TaskQueue]
"""By the type of the event that begins a step: the queue of its tasks."""


def save_moves(conn: Connection, moves: Sequence[Moved], steps: StepQueues) -> None:
    """Save moved orders and their events, and enqueue the steps that begin with these."""
    ages = repository.save(conn, moves)
    for event_type, queue in steps.items():
        if begins := [m for m in moves if m.event.type == event_type]:
            queue.enqueue(conn, [NewTask(m.order.id, dump_payload(m.order), m.traceparent) for m in begins])
    for order, event, traceparent in moves:
        if event.data["previous"] != order.status:
            metrics.orders_entered(order.status)
        if order.status is OrderStatus.CONFIRMED and event.type == "order.confirmed":
            metrics.order_confirmed(ages[order.id], traceparent)
