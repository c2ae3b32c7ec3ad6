"""Many rows at once: a system that is away, one that comes back, and rows that failed together."""

import asyncio
from collections import Counter

import pytest
from sqlalchemy import Connection, text

from app.db import Database
from app.orders.create import Created, Placement, create_orders
from app.orders.moves import StepQueues
from app.resilience import Policy
from app.settings import load_settings
from app.systems.request import Request
from app.tasks.queue import TaskQueue
from app.tasks.settlement import Settlement, settle
from app.tasks.task import NotYet
from tests.faults.scene import Scene
from tests.service import Service, service_running, settings_for

ROWS = 1000
HERD = 5000


async def accept(database: Database, steps: StepQueues, count: int) -> list[int]:
    """Take many orders in, in one transaction."""
    answers = await create_orders(database.engine, steps, [Placement("c-42", ())] * count)
    return [answer.order_id for answer in answers if isinstance(answer, Created)]


def policy(service: Service, system: str) -> Policy:
    return service.wiring.systems[system].policy


async def test_an_open_breaker_costs_no_attempt_and_holds_up_nobody_else(scene: Scene) -> None:
    """A thousand rows wait for a system that is away, round after round; the other systems' rows flow meanwhile."""
    environ = {
        "ORDERS_CLIENT__INSURANCE__BREAKER__OPEN_SECONDS": "1.5",
        "ORDERS_CLIENT__SBER__BREAKER__OPEN_SECONDS": "0.5",
    }
    async with service_running(settings_for(scene.dsn, scene.sandbox.url, environ)) as service:
        policy(service, "sber").isolate()
        await scene.place(service.client, 40)
        await scene.until("SELECT count(*) = 40 FROM orders WHERE status = 'CONFIRMED'")
        policy(service, "insurance").isolate()
        waiting = await accept(scene.database, service.wiring.step_queues, ROWS)
        scene.placed += waiting
        policy(service, "sber").release()
        await scene.until("SELECT count(*) = 40 FROM orders WHERE status = 'COMPLETED'")
        await scene.until("SELECT min(lease_token) >= 3 FROM order_confirmation_task WHERE status = 'PENDING'")
        given_back = "WHERE status = 'PENDING' AND lease_token % 2 = 0"
        assert await scene.value(f"SELECT max(retry_count) FROM order_confirmation_task {given_back}") == 0
        assert not (await scene.sandbox.operations("insurance")).keys() & {str(order_id) for order_id in waiting}
        await scene.sandbox.set("insurance", outcome="REJECTED")
        policy(service, "insurance").release()
        await scene.ends(status=("COMPLETED", "REJECTED"))


async def test_a_system_that_comes_back_is_met_by_three(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hundred rows due at a half-open breaker three calls are made; the others follow once it has closed."""
    environ = {
        "ORDERS_CLIENT__INSURANCE__BREAKER__OPEN_SECONDS": "1.5",
        "ORDERS_CLIENT__INSURANCE__RETRY__ATTEMPTS": "1",
    }
    async with service_running(settings_for(scene.dsn, scene.sandbox.url, environ)) as service:
        await scene.sandbox.set("insurance", mode="error")
        await scene.place(service.client, 100)
        async with asyncio.timeout(15):
            while policy(service, "insurance").breaker_state != "open":
                await asyncio.sleep(0.01)
        await scene.sandbox.set("insurance", mode="slow", latency_ms=100, outcome="REJECTED")
        states: list[str] = []
        client = service.wiring.systems["insurance"].client
        send = client.send

        async def noted(request: Request) -> bytes:
            states.append(policy(service, "insurance").breaker_state)
            return await send(request)

        monkeypatch.setattr(client, "send", noted)
        await scene.ends(failed=30, status=("REJECTED",))
    assert states[:3] == ["half_open"] * 3
    assert set(states[3:]) == {"closed"}


async def test_rows_that_failed_together_come_back_apart(database: Database) -> None:
    """Five thousand rows that fail within a second are spread over the whole window of their next attempt."""
    rules = load_settings({}).tasks["order_confirmation_task"]
    queue = TaskQueue("order_confirmation_task", database.engine)
    await accept(database, {"order.accepted": queue}, HERD)
    async with database.engine.begin() as conn:
        await conn.execute(text("UPDATE order_confirmation_task SET retry_count = 12"))
    claim = await queue.claim(HERD, 30)
    await queue.settle([settle(task, NotYet("http_503: no"), rules) for task in claim.tasks], nothing)
    async with database.engine.connect() as conn:
        rows = await conn.execute(
            text("SELECT extract(epoch FROM next_attempt_at - now()) FROM order_confirmation_task")
        )
        due = [float(row[0]) for row in rows]
    window = (rules.backoff_cap / (1 + rules.jitter), rules.backoff_cap)
    assert window[0] - 1 < min(due)
    assert max(due) <= window[1]
    per_second = Counter(int(second) for second in due)
    assert len(per_second) >= 50
    assert max(per_second.values()) < 2 * HERD / (window[1] - window[0])


async def test_twenty_calls_reach_a_system_that_is_down(scene: Scene) -> None:
    """Not 19 and not 21 calls are made before the step fails, when each attempt is one call."""
    environ = {
        "ORDERS_CLIENT__INSURANCE__RETRY__ATTEMPTS": "1",
        "ORDERS_CLIENT__INSURANCE__BREAKER__MINIMUM_CALLS": "50",
        "ORDERS_TASKS__DEFAULT__POLL_INTERVAL": "0.05",
    }
    hurry = "UPDATE order_confirmation_task SET next_attempt_at = now() WHERE lease_token % 2 = 0 RETURNING status"
    async with service_running(settings_for(scene.dsn, scene.sandbox.url, environ)) as service:
        await scene.sandbox.set("insurance", mode="error")
        await scene.place(service.client)
        async with asyncio.timeout(20):
            while await scene.rows(hurry) != [("FAILED",)]:
                await asyncio.sleep(0.02)
        await scene.ends(status=("CONFIRMATION_FAILED",))
    assert (await scene.sandbox.control("insurance"))["counters"]["calls"]["POST /applications"] == 20


def nothing(_conn: Connection, _settlements: list[Settlement]) -> None:
    """No effects."""
