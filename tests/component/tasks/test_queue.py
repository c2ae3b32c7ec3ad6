"""The statements of a task table, on a real PostgreSQL."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Connection, text

from app.db import Database
from app.tasks.queue import NewTask, TaskQueue
from app.tasks.settlement import Settlement, settle
from app.tasks.task import Done, GivenUp, NotMade, NotYet, Outcome, Sent, Task
from tests.rows import Rules, insert_orders


def nothing(_conn: Connection, _settlements: list[Settlement]) -> None:
    """No effects."""


@pytest.fixture
def queue(database: Database) -> TaskQueue:
    return TaskQueue("order_confirmation_task", database.engine)


async def fill(database: Database, queue: TaskQueue, rows: int = 1) -> list[int]:
    """Enqueue tasks of new orders; returns their ids."""
    async with database.engine.begin() as conn:
        orders = await insert_orders(conn, rows)
        ids = await conn.run_sync(queue.enqueue, [NewTask(order_id, "{}") for order_id in orders])
    return [ids[order_id] for order_id in orders]


async def run(database: Database, sql: str, **values: Any) -> Sequence[Any]:
    async with database.engine.begin() as conn:
        result = await conn.execute(text(sql), values)
        return result.all() if result.returns_rows else []


async def row(database: Database, task_id: int) -> Any:
    sql = "SELECT *, extract(epoch FROM next_attempt_at - now()) AS due_in FROM order_confirmation_task"
    return (await run(database, f"{sql} WHERE task_id = :id", id=task_id))[0]


async def one(queue: TaskQueue, lease: float = 30) -> Task:
    (task,) = (await queue.claim(1, lease)).tasks
    return task


async def end(queue: TaskQueue, task: Task, outcome: Outcome) -> set[int]:
    return {lease.task_id for lease in await queue.settle([settle(task, outcome, Rules())], nothing)}


async def test_a_claim_leases_due_rows_oldest_first(database: Database, queue: TaskQueue) -> None:
    """A claim takes the oldest due rows, counts the attempt, moves them to the lease's end and leaves the status."""
    ids = await fill(database, queue, 3)
    await run(
        database,
        "UPDATE order_confirmation_task SET next_attempt_at = now() - interval '1 min' * (4 - task_id + :first)",
        first=ids[0],
    )
    tasks = (await queue.claim(2, 30)).tasks
    assert sorted(t.task_id for t in tasks) == ids[:2]
    assert {(t.attempt, t.lease_token, t.status) for t in tasks} == {(1, 1, "PENDING")}
    claimed = await row(database, ids[0])
    assert (claimed.status, claimed.retry_count, claimed.lease_token) == ("PENDING", 1, 1)
    assert 28 < claimed.due_in <= 30


async def test_a_count_at_its_limit_holds_up_nobody(database: Database, queue: TaskQueue) -> None:
    """A row whose attempts cannot be counted any further is claimed like the others, and harms none of them."""
    ids = await fill(database, queue, 2)
    await run(database, "UPDATE order_confirmation_task SET retry_count = 2147483647 WHERE task_id = :id", id=ids[0])
    claimed = {t.task_id: t.attempt for t in (await queue.claim(2, 30)).tasks}
    assert claimed == {ids[0]: 2**31 - 1, ids[1]: 1}


async def test_replicas_claim_different_rows(database: Database, queue: TaskQueue) -> None:
    """Claims that run at the same time share the rows out; none is taken twice, none is waited for."""
    await fill(database, queue, 40)
    claims = await asyncio.gather(*(queue.claim(10, 30) for _ in range(6)))
    taken = [t.task_id for claim in claims for t in claim.tasks]
    assert len(taken) == len(set(taken)) == 40


async def test_a_claim_does_not_wait_for_a_locked_row(database: Database, queue: TaskQueue) -> None:
    """A row that somebody holds in an open transaction is passed over."""
    ids = await fill(database, queue, 2)
    async with database.engine.begin() as conn:
        await conn.execute(text("SELECT FROM order_confirmation_task WHERE task_id = :id FOR UPDATE"), {"id": ids[0]})
        async with asyncio.timeout(3):
            assert [t.task_id for t in (await queue.claim(10, 30)).tasks] == [ids[1]]


async def test_a_claim_tells_when_the_next_row_falls_due(database: Database, queue: TaskQueue) -> None:
    """The same statement says how long one may sleep, leases of others included."""
    assert (await queue.claim(5, 30)).next_due is None
    ids = await fill(database, queue, 2)
    await run(
        database,
        "UPDATE order_confirmation_task SET next_attempt_at = now() + interval '9 s' WHERE task_id = :id",
        id=ids[1],
    )
    claim = await queue.claim(5, 30)
    assert [t.task_id for t in claim.tasks] == ids[:1]
    assert claim.next_due == pytest.approx(9, abs=1)


async def test_what_falls_due_behind_the_last_claim_is_found(
    database: Database, queue: TaskQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim begins where the last one ended, and now and then at the oldest row: none is passed over for long."""
    monkeypatch.setattr("app.tasks.queue.LOOK_BACK", 0.5)
    await fill(database, queue, 2)
    assert len((await queue.claim(1, 30)).tasks) == 1
    await run(
        database, "UPDATE order_confirmation_task SET next_attempt_at = now() - interval '1 h' WHERE retry_count = 0"
    )
    assert (await queue.claim(1, 30)).tasks == []
    await asyncio.sleep(0.6)
    assert len((await queue.claim(1, 30)).tasks) == 1


async def test_an_expired_lease_is_claimed_again(database: Database, queue: TaskQueue) -> None:
    """The rows of a dead worker simply fall due; nobody needs to rescue them."""
    await fill(database, queue)
    first = await one(queue, lease=0.05)
    await asyncio.sleep(0.1)
    second = await one(queue)
    assert (second.task_id, second.attempt, second.lease_token) == (first.task_id, 2, 2)


@pytest.mark.rule("SHUT-IDEM")
async def test_a_lost_lease_changes_nothing(database: Database, queue: TaskQueue) -> None:
    """Who settles after its lease was taken over changes neither the row nor what belongs to it."""
    await fill(database, queue)
    stale = await one(queue, lease=0.05)
    await asyncio.sleep(0.1)
    fresh = await one(queue)
    applied: list[Settlement] = []

    def apply(_conn: Connection, settlements: list[Settlement]) -> None:
        applied.extend(settlements)

    assert await queue.settle([settle(stale, Done("effect"), Rules())], apply) == set()
    assert not applied
    assert await end(queue, fresh, Done()) == {fresh.task_id}


async def test_an_operators_reset_does_not_let_a_stale_lease_in(database: Database, queue: TaskQueue) -> None:
    """The token is not the attempt number: after a manual retry with the attempts at zero the old lease stays out."""
    await fill(database, queue)
    stale = await one(queue, lease=0.05)
    await asyncio.sleep(0.1)
    await end(queue, await one(queue), GivenUp("no"))
    async with database.engine.begin() as conn:
        assert await conn.run_sync(queue.revive, stale.task_id) == stale.order_id
    assert (await row(database, stale.task_id)).retry_count == 0
    assert await end(queue, stale, Done()) == set()
    assert (await row(database, stale.task_id)).status == "PENDING"


@pytest.mark.parametrize(
    "outcome",
    [Sent("x"), Done("effect"), NotYet("e"), NotMade("m", 3), GivenUp("g", "effect")],
    ids=lambda o: type(o).__name__,
)
async def test_a_repeated_settle_changes_nothing(database: Database, queue: TaskQueue, outcome: Outcome) -> None:
    """A settle whose answer was lost is repeated without effect, whatever its outcome."""
    await fill(database, queue)
    task = await one(queue)
    assert await end(queue, task, outcome) == {task.task_id}
    before = await row(database, task.task_id)
    assert await end(queue, task, outcome) == set()
    assert (await row(database, task.task_id))[:-1] == before[:-1]


async def test_one_statement_settles_a_mixed_batch(database: Database, queue: TaskQueue) -> None:
    """Rows of one batch end each in its own way."""
    ids = await fill(database, queue, 5)
    tasks = sorted((await queue.claim(5, 30)).tasks, key=lambda t: t.task_id)
    outcomes: list[Outcome] = [
        Sent("ext"),
        Done(),
        NotYet("http_503: no"),
        NotMade("open: later", 7),
        GivenUp("refused: never"),
    ]
    settled = await queue.settle([settle(t, o, Rules()) for t, o in zip(tasks, outcomes, strict=True)], nothing)
    assert {lease.task_id for lease in settled} == set(ids)
    rows = [await row(database, i) for i in ids]
    assert [r.status for r in rows] == ["IN_PROGRESS", "COMPLETED", "PENDING", "PENDING", "FAILED"]
    assert [r.retry_count for r in rows] == [1, 1, 1, 0, 1]
    assert [r.external_id for r in rows] == ["ext", None, None, None, None]
    assert [r.last_error for r in rows] == [None, None, "http_503: no", "open: later", "refused: never"]
    assert 29 < rows[0].due_in <= 30
    assert 1.5 < rows[2].due_in < 3
    assert 6 < rows[3].due_in <= 7


async def test_a_failing_effect_rolls_the_settle_back(database: Database, queue: TaskQueue) -> None:
    """Task and effect are one transaction: without the effect the row stays as it was."""
    await fill(database, queue)
    task = await one(queue)

    def explode(_conn: Connection, _settlements: list[Settlement]) -> None:
        raise RuntimeError("effect")

    with pytest.raises(RuntimeError, match="effect"):
        await queue.settle([settle(task, Done("effect"), Rules())], explode)
    assert (await row(database, task.task_id)).status == "PENDING"


@pytest.mark.rule("RE-1")
async def test_the_key_stays_until_the_system_ends_the_operation(database: Database, queue: TaskQueue) -> None:
    """Attempts, failures and retries keep the Idempotency-Key; an operation that the system ended gets a new one."""
    await fill(database, queue)
    first = await one(queue)
    await end(queue, first, GivenUp("attempts: none left"))
    async with database.engine.begin() as conn:
        await conn.run_sync(queue.revive, first.task_id)
    second = await one(queue)
    assert second.key == first.key
    await end(queue, second, Sent("booking-1"))
    polled = settle(second, Sent("booking-1"), Rules()).going_on
    assert polled is not None
    await end(queue, polled, GivenUp("ended: at the system", ended=True))
    async with database.engine.begin() as conn:
        await conn.run_sync(queue.revive, first.task_id)
    third = await one(queue)
    assert (third.status, third.external_id) == ("PENDING", None)
    assert third.key != first.key


async def test_withdrawing_needs_an_untouched_task(database: Database, queue: TaskQueue) -> None:
    """Unless told otherwise, a task is withdrawn only before its first attempt; the lease of such a task is void."""
    await fill(database, queue, 2)
    touched = await one(queue)
    async with database.engine.begin() as conn:
        assert not await conn.run_sync(queue.withdraw, touched.order_id, reason="r", sent=False)
        assert await conn.run_sync(queue.withdraw, touched.order_id, reason="r", sent=True)
    assert await end(queue, touched, Done()) == set()
    untouched = await one(queue)
    await end(queue, untouched, NotMade("given back"))
    async with database.engine.begin() as conn:
        assert await conn.run_sync(queue.withdraw, untouched.order_id, reason="r", sent=False)


async def test_figures_count_due_rows_only(database: Database, queue: TaskQueue) -> None:
    """The backlog is what is due now; rows under lease or in the future are not in it, and the count is bounded."""
    await fill(database, queue, 5)
    await queue.claim(2, 30)
    due, oldest = await queue.figures()
    assert due == 3
    assert oldest >= 0
    assert (await queue.figures(most=2))[0] == 2


async def test_the_claim_reads_the_due_rows_through_their_index(database: Database, queue: TaskQueue) -> None:
    """Finished and future rows do not matter: the plan walks ix_oct_due and sorts nothing."""
    await run(
        database,
        """WITH o AS (INSERT INTO orders (customer_id, items, status) SELECT 'c', '[]', 'ACCEPTED'
                     FROM generate_series(1, 20000) RETURNING id)
           INSERT INTO order_confirmation_task (order_id, status, next_attempt_at, payload)
           SELECT id, CASE WHEN id % 2 = 0 THEN 'COMPLETED' ELSE 'PENDING' END, now() + interval '1 day', '{}'
           FROM o""",
    )
    await run(database, "ANALYZE order_confirmation_task")
    plan = await run(
        database,
        """EXPLAIN SELECT task_id FROM order_confirmation_task WHERE status IN ('PENDING', 'IN_PROGRESS')
           AND next_attempt_at <= now() ORDER BY next_attempt_at LIMIT 50 FOR UPDATE SKIP LOCKED""",
    )
    lines = "\n".join(line for (line,) in plan)
    assert "Index Scan using ix_oct_due" in lines
    assert "Sort" not in lines
