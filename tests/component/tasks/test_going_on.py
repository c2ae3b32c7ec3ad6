"""What was just sent stays under its lease: also where the settle that says so fails, is late, or meets the end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sqlalchemy import text

from app.db import Database
from app.tasks.poller import Poller
from app.tasks.queue import TaskQueue
from app.tasks.settlement import settle
from app.tasks.task import Done, Lease, Outcome, Sent, Task
from tests.component.tasks.script import TABLE, Script, ended, fill, rows, until
from tests.rows import Rules

Settle = Callable[..., Awaitable[set[Lease]]]


async def send_then_end(task: Task) -> Outcome:
    return Sent("app-1") if task.status == "PENDING" else Done()


def polling(queue: TaskQueue, work: Script, way: Callable[[Settle, int], Settle], lease: float = 20) -> Poller:
    """A poller whose settles go another way; `way` is told which of them it is, from 1."""
    real, number = queue.settle, 0

    async def settled(*args: Any) -> set[Lease]:
        nonlocal number
        number += 1
        return await way(real, number)(*args)

    queue.settle = settled  # type: ignore[method-assign,assignment]
    return Poller(queue, work, Rules(lease=lease), slots=4, stalled_after=5)


async def test_a_settle_that_was_not_answered_is_gone_on_from(database: Database) -> None:
    """The row was sent, and only the answer to that was lost: it is asked about at once, and no attempt is burnt."""

    def way(real: Settle, number: int) -> Settle:
        async def unanswered(*args: Any) -> set[Lease]:
            await real(*args)
            raise ConnectionResetError("the answer is lost")

        return unanswered if number == 1 else real

    await fill(database, 1)
    work = Script(send_then_end)
    poller = polling(TaskQueue(TABLE, database.engine), work, way)
    poller.start()
    await until(lambda: ended(database))
    await poller.drain(0.5)
    assert [(t.status, t.attempt) for t in work.attempts] == [("PENDING", 1), ("IN_PROGRESS", 1)]


async def test_a_lost_lease_is_left_to_whoever_has_it(database: Database) -> None:
    """A settle that comes after the lease takes nothing from the worker who has claimed the row meanwhile."""
    (task_id,) = await fill(database, 1)
    other, theirs = TaskQueue(TABLE, database.engine), list[Task]()

    def way(real: Settle, number: int) -> Settle:
        async def fails(*_args: Any) -> set[Lease]:
            poller.stop_claiming()
            raise ConnectionResetError("no database")

        async def is_late(*args: Any) -> set[Lease]:
            await asyncio.sleep(2)
            theirs.extend((await other.claim(1, 30)).tasks)
            return await real(*args)

        return {1: fails, 2: is_late}.get(number, real)

    poller = polling(TaskQueue(TABLE, database.engine), Script(send_then_end), way, lease=2)
    poller.start()

    async def claimed() -> bool:
        return bool(theirs)

    await until(claimed)
    await poller.drain(0.5)
    held = await other.settle([settle(theirs[0], Done(), Rules())], Script(send_then_end).apply)
    assert held == {(task_id, 2)}


async def test_what_is_sent_while_the_service_stops_is_given_back(database: Database) -> None:
    """It is due at once for another worker, under the system's id and without an attempt counted."""
    await fill(database, 1)
    stopping = asyncio.Event()

    def way(real: Settle, number: int) -> Settle:
        async def fails(*_args: Any) -> set[Lease]:
            raise ConnectionResetError("no database")

        async def waits(*args: Any) -> set[Lease]:
            await stopping.wait()
            return await real(*args)

        return {1: fails, 2: waits}.get(number, real)

    work = Script(send_then_end)
    poller = polling(TaskQueue(TABLE, database.engine), work, way)
    poller.start()

    async def sent() -> bool:
        return bool(poller._alone)

    await until(sent)
    draining = asyncio.create_task(poller.drain(1))
    await asyncio.sleep(0.2)
    stopping.set()
    await draining
    (row,) = await rows(database)
    assert (row.status, row.external_id, row.retry_count, row.due_in <= 0) == ("IN_PROGRESS", "app-1", 0, True)
    assert len(work.attempts) == 1


async def test_rows_that_somebody_locks_do_not_hold_up_a_claim(database: Database) -> None:
    """A claim gives back what it can of the one that was not answered, and goes on."""
    first, _ = await fill(database, 2)
    queue = TaskQueue(TABLE, database.engine)
    row = (await queue.claim(1, 30)).tasks[0]
    async with database.engine.begin() as conn:
        ends = (await conn.execute(text(f"SELECT next_attempt_at FROM {TABLE} WHERE task_id = {first}"))).scalar_one()
        queue._unanswered.append((row.task_id, row.lease_token, ends))
        await conn.execute(text(f"SELECT 1 FROM {TABLE} WHERE task_id = {first} FOR UPDATE"))
        async with asyncio.timeout(3):
            assert [task.task_id for task in (await queue.claim(5, 30)).tasks] != [first]
