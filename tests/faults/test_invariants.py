"""The invariants themselves: they hold for every journey, and each of them notices what it is there for."""

import json
from pathlib import Path

import pytest
from sqlalchemy import text

from app.db import Database
from app.orders.invariants import INVARIANTS, TASKS
from app.orders.journey import journey
from app.orders.order import MOVES, OrderStatus
from tests.faults.scene import Scene
from tests.processes import processes
from tests.service import SYSTEMS, Sandbox, service_running, settings_for

FAR = "now() + interval '301 s'"

CORRUPTIONS = [
    ("tasks fit the status", "DELETE FROM payment_task"),
    ("tasks fit the status", "UPDATE booking_task SET status = 'FAILED'"),
    ("tasks fit the status", "UPDATE orders SET status = 'CANCELLED'"),
    ("tasks fit the status", "UPDATE orderbook_task SET status = 'IN_PROGRESS', next_attempt_at = now() + '1 min'"),
    ("one event for each version", "DELETE FROM outbox_event WHERE sequence = 3"),
    ("one event for each version", "DELETE FROM outbox_event"),
    ("one event for each version", "UPDATE orders SET version = version - 1"),
    ("the last event tells the status", "UPDATE outbox_event SET data = '{}' WHERE type = 'order.completed'"),
    ("order and task know the same payment", "UPDATE payment_task SET external_id = 'another payment'"),
    ("order and task know the same payment", "UPDATE orders SET details = details - 'paymentId'"),
    ("every task names its operation", "UPDATE receipt_creation_task SET payload = payload - 'key'"),
    ("active tasks come due", f"UPDATE orderbook_task SET status = 'PENDING', next_attempt_at = {FAR}"),
    ("attempts end", f"UPDATE orderbook_task SET status = 'PENDING', retry_count = 22, next_attempt_at = {FAR}"),
    ("events go out, or say why not", f"UPDATE outbox_event SET status = 'PENDING', next_attempt_at = {FAR}"),
    ("events go out, or say why not", "UPDATE outbox_event SET status = 'PARKED'"),
    ("events go out, or say why not", "UPDATE outbox_event SET published_at = NULL"),
]

BAD_ENDS = {
    "insurance": ("REJECTED", "REJECTED"),
    "sber": ("DECLINED", "PAYMENT_DECLINED"),
    "receipt": ("FAILED", "RECEIPT_FAILED"),
    "odnakassa": ("FAILED", "BOOKING_FAILED"),
}


def test_every_status_has_its_tasks() -> None:
    """The table of tasks by status says what the moves and the steps bring about."""
    letters = {OrderStatus.ACCEPTED: {"A----"}}
    for place, step in enumerate(journey(dict.fromkeys(SYSTEMS))):
        begins = {m.ends for m in MOVES.values() if m.event == step.begins} or {OrderStatus.ACCEPTED}
        (status,) = begins
        letters[status] = {("C" * place + "A").ljust(5, "-")}
        letters[MOVES[step.fails].ends] = {("C" * place + "F").ljust(5, "-")}
        for move in MOVES.values():
            closes = status in move.starts and move.event != "order.step_failed" and move.ends is not status
            if closes and move.ends.final:
                letters.setdefault(move.ends, set()).add(("C" * (place + 1)).ljust(5, "-"))
    assert {status: set(shapes.split("|")) for status, shapes in TASKS.items()} == letters
    assert set(TASKS) == set(OrderStatus)


async def test_they_hold_whatever_becomes_of_an_order(scene: Scene) -> None:
    """Completed, rejected, declined, cancelled, failed and retried orders break none, at rest or in flight."""
    settings = settings_for(scene.dsn, scene.sandbox.url)
    async with service_running(settings) as service:
        await scene.place(service.client, 10)
        for system, (outcome, status) in BAD_ENDS.items():
            await scene.sandbox.set(system, outcome=outcome)
            await service.reach(await scene.place(service.client, 2), status)
            await scene.sandbox.set(system, outcome=None)
        await scene.sandbox.set("insurance", mode="hang")
        for order_id in await scene.place(service.client, 3):
            assert (await service.client.post(f"/orders/{order_id}/cancel")).status_code == 200
        await scene.sandbox.set("insurance", mode="ok")
        await scene.ends(status=("COMPLETED", "CANCELLED", *(status for _, status in BAD_ENDS.values())))


async def test_each_notices_what_it_is_there_for(scene: Scene, subtests: pytest.Subtests) -> None:
    """Data that a fault of ours could leave behind is found, under the name of the invariant that it breaks."""
    async with service_running(settings_for(scene.dsn, scene.sandbox.url)) as service:
        await scene.place(service.client)
        await scene.ends()
    for invariant, corruption in CORRUPTIONS:
        with subtests.test(corruption=corruption):
            async with scene.database.engine.connect() as conn:
                await conn.execute(text(corruption))
                found = await scene.violated_on(conn)
            assert invariant in {line.partition(":")[0] for line in found}


async def test_what_retention_removed_is_not_missed(scene: Scene) -> None:
    """Done tasks and published events of an old order may be gone; those of a young one, and failed tasks, may not."""
    async with service_running(settings_for(scene.dsn, scene.sandbox.url)) as service:
        await scene.place(service.client)
        await scene.ends()
    removed = ("DELETE FROM outbox_event WHERE sequence < 6", "DELETE FROM payment_task")
    aged = "UPDATE orders SET created_at = now() - interval '8 days'"
    async with scene.database.engine.connect() as conn:
        for statement in removed:
            await conn.execute(text(statement))
        assert len(await scene.violated_on(conn)) == 2
        await conn.execute(text(aged))
        assert await scene.violated_on(conn) == []
        await conn.execute(text("DELETE FROM outbox_event"))
        assert len(await scene.violated_on(conn)) == 1
        await conn.execute(text("UPDATE orders SET updated_at = now() - interval '8 days'"))
        assert await scene.violated_on(conn) == []
        await conn.execute(text("UPDATE orders SET status = 'PAYMENT_FAILED'"))
        assert len(await scene.violated_on(conn)) == 1


@pytest.mark.slow
async def test_the_command_tells_what_does_not_hold(database: Database, sandbox: Sandbox, tmp_path: Path) -> None:
    """Exit code 0 and one line when all is well, 1 and each violation otherwise, for people and for programs."""
    async with service_running(settings_for(database.dsn, sandbox.url)) as service:
        order_id = await service.place()
        await service.reach([order_id], "COMPLETED")
    with processes(database.dsn, tmp_path) as run:
        assert run.run("invariants").stdout == f"all {len(INVARIANTS)} invariants hold\n"
        async with database.engine.begin() as conn:
            await conn.execute(text("UPDATE receipt_creation_task SET payload = payload - 'key'"))
        shown, told = run.run("invariants", check=False), run.run("invariants", "--json", check=False)
    assert (shown.returncode, told.returncode) == (1, 1)
    assert "receipt_creation_task has no key" in shown.stdout
    assert json.loads(told.stdout) == [
        {
            "invariant": "every task names its operation",
            "orderId": order_id,
            "found": "receipt_creation_task has no key",
        }
    ]


def test_no_invariant_is_left_out() -> None:
    """There is a corruption for every invariant."""
    assert {invariant for invariant, _ in CORRUPTIONS} == {invariant.name for invariant in INVARIANTS}
