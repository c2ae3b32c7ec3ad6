"""Group commit: orders that arrive while a transaction is under way share the next one."""

import asyncio
from typing import NamedTuple

from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from app.observability.traces import continued
from app.orders.create import Answer, Created, Placement, create_orders
from app.orders.moves import StepQueues
from app.transaction import autocommit


class _Waiting(NamedTuple):
    placement: Placement
    answer: asyncio.Future[Answer]


class Intake:
    """Takes orders in, at most `most` in one transaction. Each is answered when its own transaction has committed.

    How many wait is bounded by how many requests are admitted, how long by the database's timeouts.
    """

    def __init__(self, engine: AsyncEngine, steps: StepQueues, *, most: int) -> None:
        self._engine, self._steps, self._most = autocommit(engine), steps, most
        self._waiting: list[_Waiting] = []
        self._writing: asyncio.Task[None] | None = None

    async def place(self, placement: Placement) -> Created:
        """Save the order; once this returns, it will be brought to its end whatever happens to this process.

        Raises KeyInFlight or KeyReused, and whatever the database raises: then it is not known to be saved.
        """
        waiting = _Waiting(placement, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="intake")
        answer = await waiting.answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def idle(self) -> None:
        """Return once nothing is being written."""
        if self._writing is not None:
            await asyncio.wait({self._writing})

    async def _write(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                await self._commit(group)
        finally:
            self._writing = None

    async def _commit(self, group: list[_Waiting]) -> None:
        """Write a group; if the database refuses one of its rows, write each alone, so that only that one fails."""
        traces = [w.placement.traceparent for w in group]
        try:
            with continued("intake commit", traces[0], {"orders": len(group)}, links=traces[1:]):
                answers = await create_orders(self._engine, self._steps, [w.placement for w in group])
        except (DataError, IntegrityError) as error:
            if len(group) == 1:
                _fail(group, error)
                return
            for waiting in group:
                await self._commit([waiting])
        except Exception as error:  # noqa: BLE001 - it is raised where each of the orders is waited for
            _fail(group, error)
        else:
            for waiting, answer in zip(group, answers, strict=True):
                if not waiting.answer.done():
                    waiting.answer.set_result(answer)


def _fail(group: list[_Waiting], error: Exception) -> None:
    for waiting in group:
        if not waiting.answer.done():
            waiting.answer.set_exception(error)
