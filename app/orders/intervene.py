"""What a person may change about a journey: cancel an order, or retry a step that has failed."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from app import audit
from app.audit import By
from app.orders import repository
from app.orders.journey import Step
from app.orders.moves import Moved, save_moves
from app.orders.order import Order, WrongMove
from app.tasks.queue import TaskQueue

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
    async with engine.begin() as conn:
        return await _cancel(conn, queues, order_id)


async def cancel_step(engine: AsyncEngine, queues: Queues, step: Step, task_id: int, order_id: int, *, by: By) -> Order:
    """Cancel the task's order for an operator who gives it up; raises WrongMove where `cancel_order` would.

    A FAILED task is retried first, so that its order can be cancelled before the attempt is made.
    """
    async with engine.begin() as conn:
        with suppress(NotFailed):
            await _retry(conn, queues, step, task_id)
        cancelled = await _cancel(conn, queues, order_id)
        await audit.record(conn, by, "cancel", f"{step.table}/{task_id}")
    return cancelled


async def retry_step(engine: AsyncEngine, queues: Queues, step: Step, task_id: int, by: By) -> Order:
    """Give a failed step its attempts back and its order the status it failed from; raises NotFailed or WrongMove."""
    async with engine.begin() as conn:
        retried = await _retry(conn, queues, step, task_id)
        await audit.record(conn, by, "retry", f"{step.table}/{task_id}")
    return retried


def step_of(steps: Sequence[Step], table: str) -> Step | None:
    return next((step for step in steps if step.table == table), None)


async def _cancel(conn: AsyncConnection, queues: Queues, order_id: int) -> Order:
    reason = "the order was cancelled"
    withdrawn = await queues["order_confirmation_task"].withdraw(conn, order_id, reason=reason, sent=True)
    if not withdrawn:
        withdrawn = await queues["payment_task"].withdraw(conn, order_id, reason=reason, sent=False)
    order = (await repository.lock(conn, [order_id])).get(order_id)
    if order is None:
        raise NoSuchOrder(order_id)
    moved, event = order.move("cancel", reason=reason)
    if not withdrawn:
        raise WrongMove(order_id, order.status, "cancel", "its payment may already be registered")
    await save_moves(conn, [Moved(moved, event)], {})
    return moved


async def _retry(conn: AsyncConnection, queues: Queues, step: Step, task_id: int) -> Order:
    order_id = await queues[step.table].revive(conn, task_id)
    if order_id is None:
        raise NotFailed(step.table, task_id)
    order = (await repository.lock(conn, [order_id]))[order_id]
    moved, event = order.move(step.retries)
    await save_moves(conn, [Moved(moved, event)], {})
    return moved
