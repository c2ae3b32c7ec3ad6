"""A claim whose COMMIT is not answered: nobody works on its rows, and nobody's lease is taken for it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy.exc import DBAPIError

from app.db import Database, open_database
from app.tasks.queue import TaskQueue
from app.tasks.settlement import settle
from app.tasks.task import Done, Task
from tests.component.tasks.script import TABLE, Script, always, fill, rows
from tests.conftest import pg_settings
from tests.faults.proxy import Fate, Proxy, proxy_to_postgres
from tests.rows import Rules


@pytest.fixture
async def proxy_and_queue(pg_dsn: str) -> AsyncIterator[tuple[Proxy, TaskQueue]]:
    async with (
        proxy_to_postgres(pg_dsn) as (proxy, dsn),
        open_database(pg_settings(dsn), application_name="cut") as database,
    ):
        yield proxy, TaskQueue(TABLE, database.engine)


async def claimed(queue: TaskQueue) -> Task:
    """The one row; while PostgreSQL has not noticed that a connection was cut, its session still locks it."""
    async with asyncio.timeout(8):
        while not (tasks := (await queue.claim(1, 30)).tasks):
            await asyncio.sleep(0.02)
    return tasks[0]


async def fail(proxy: Proxy, queue: TaskQueue, cut: Fate) -> None:
    proxy.fate = lambda number: cut if number == 1 else "passes"
    with pytest.raises(DBAPIError):
        await queue.claim(1, 30)


@pytest.mark.parametrize("cut", ["cut before", "cut after"])
async def test_its_row_is_claimed_anew_at_its_first_attempt(
    database: Database, proxy_and_queue: tuple[Proxy, TaskQueue], cut: Fate
) -> None:
    """Whether the claim was made or not, it has cost neither an attempt nor the time of a lease."""
    (task_id,) = await fill(database, 1)
    proxy, queue = proxy_and_queue
    await fail(proxy, queue, cut)
    task = await claimed(queue)
    assert (task.task_id, task.attempt) == (task_id, 1)


async def test_it_gives_back_nobody_elses_lease(database: Database, proxy_and_queue: tuple[Proxy, TaskQueue]) -> None:
    """Once it was rolled back another worker's claim has the very same token, and yet stays that worker's."""
    await fill(database, 1)
    proxy, queue = proxy_and_queue
    await fail(proxy, queue, "cut before")
    other = TaskQueue(TABLE, database.engine)
    theirs = await claimed(other)
    assert theirs.lease_token == 1
    assert (await queue.claim(1, 30)).tasks == []
    assert await other.settle([settle(theirs, Done(), Rules())], Script(always(Done())).apply)
    assert [row.status for row in await rows(database)] == ["COMPLETED"]
