"""What a person may change about a journey: cancel an order, or retry a step that has failed."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncEngine

from app import audit
from app.audit import By
from app.orders import repository
from app.orders.journey import Step
from app.orders.moves import save_moves
from app.orders.order import Order, WrongMove
from app.orders.repository import Moved
from app.tasks.queue import TaskQueue
from app.transaction import transact

Queues = Mapping[str, TaskQueue]


class NoSuchOrder(Exception):
    """No order has this id."""


class NotFailed(Exception):
    """There is no such task, or it has not failed."""


async def cancel_order(engine: AsyncEngine, queues: Queues, order_id: int) -> Order:
    """Cancel an order whose payment cannot have been registered yet; raises NoSuchOrder or WrongMove.

    Whoever gets the task's row first wins: a step that was running finds its lease gone, or the cancel finds the task
    closed. A confirmation under way may be dropped; a payment only if no attempt at registering it was ever made.
    """
    return await transact(engine, lambda conn: _cancel(conn, queues, order_id))


async def cancel_step(engine: AsyncEngine, queues: Queues, step: Step, task_id: int, order_id: int, *, by: By) -> Order:
    """Cancel the task's order for an operator who gives it up; raises WrongMove where `cancel_order` would.

    A FAILED task is retried first, so that its order can be cancelled before the attempt is made.
    """

    def cancel(conn: Connection) -> Order:
        with suppress(NotFailed):
            _retry(conn, queues, step, task_id)
        cancelled = _cancel(conn, queues, order_id)
        audit.record(conn, by, "cancel", f"{step.table}/{task_id}")
        return cancelled

    return await transact(engine, cancel)


async def retry_step(engine: AsyncEngine, queues: Queues, step: Step, task_id: int, by: By) -> Order:
    """Give a failed step its attempts back and its order the status it failed from; raises NotFailed or WrongMove."""

    def retry(conn: Connection) -> Order:
        retried = _retry(conn, queues, step, task_id)
        audit.record(conn, by, "retry", f"{step.table}/{task_id}")
        return retried

    return await transact(engine, retry)


def step_of(steps: Sequence[Step], table: str) -> Step | None:
    return next((step for step in steps if step.table == table), None)


def _cancel(conn: Connection, queues: Queues, order_id: int) -> Order:
    reason = "the order was cancelled"
    withdrawn = queues["order_confirmation_task"].withdraw(conn, order_id, reason=reason, sent=True)
    if not withdrawn:
        withdrawn = queues["payment_task"].withdraw(conn, order_id, reason=reason, sent=False)
    order = repository.lock(conn, [order_id]).get(order_id)
    if order is None:
        raise NoSuchOrder(order_id)
    moved, event = order.move("cancel", reason=reason)
    if not withdrawn:
        raise WrongMove(order_id, order.status, "cancel", "its payment may already be registered")
    save_moves(conn, [Moved(moved, event)], {})
    return moved


def _retry(conn: Connection, queues: Queues, step: Step, task_id: int) -> Order:
    order_id = queues[step.table].revive(conn, task_id)
    if order_id is None:
        raise NotFailed(step.table, task_id)
    order = repository.lock(conn, [order_id])[order_id]
    moved, event = order.move(step.retries)
    save_moves(conn, [Moved(moved, event)], {})
    return moved
