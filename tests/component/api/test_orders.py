"""Orders over HTTP, on the whole service."""

import asyncio
import time

import pytest
from sqlalchemy import text

from tests.service import ORDER, Sandbox, Service


@pytest.mark.rule("ASYNC-1", "FB-1")
async def test_placing_an_order_answers_at_once(service: Service, sandbox: Sandbox) -> None:
    """202 with where to look and when, though the insurance hangs; order and task stand in the database."""
    await sandbox.set("insurance", mode="hang")
    began = time.monotonic()
    answer = await service.client.post("/orders", json=ORDER)
    assert time.monotonic() - began < 2
    assert answer.status_code == 202
    body = answer.json()
    assert body == {"status": "queued", "orderId": body["orderId"], "taskId": body["taskId"]}
    assert answer.headers["location"] == f"/orders/{body['orderId']}"
    assert int(answer.headers["retry-after"]) >= 1
    async with service.wiring.database.engine.connect() as conn:
        rows = await conn.execute(text("SELECT order_id FROM order_confirmation_task"))
        assert [r.order_id for r in rows] == [body["orderId"]]


async def test_an_order_goes_all_the_way(service: Service, sandbox: Sandbox) -> None:
    """Through all five systems to COMPLETED, each asked for one operation, one event per move."""
    order_id = await service.place()
    await service.reach([order_id], "COMPLETED")
    order = await service.order(order_id)
    assert order["final"] is True
    assert order["total"] == {"amount": "3980.00", "currency": "RUB"}
    assert order["paymentUrl"].startswith("http")
    assert order["fiscalNumber"]
    assert order["tickets"]
    assert [(s["system"], s["status"]) for s in order["steps"]] == [
        ("insurance", "COMPLETED"),
        ("sber", "COMPLETED"),
        ("receipt", "COMPLETED"),
        ("odnakassa", "COMPLETED"),
        ("orderbook", "COMPLETED"),
    ]
    for system in ("insurance", "sber", "receipt", "odnakassa", "orderbook"):
        assert (await sandbox.operations(system)) == {str(order_id): 1}
    async with service.wiring.database.engine.connect() as conn:
        events = await conn.execute(text("SELECT sequence, type FROM outbox_event ORDER BY sequence"))
        assert [tuple(e) for e in events] == [
            (1, "order.accepted"),
            (2, "order.confirmed"),
            (3, "order.payment_registered"),
            (4, "order.paid"),
            (5, "order.receipt_issued"),
            (6, "order.booked"),
            (7, "order.completed"),
        ]


@pytest.mark.parametrize(
    ("system", "outcome", "status", "event"),
    [
        ("insurance", "REJECTED", "REJECTED", "order.rejected"),
        ("sber", "DECLINED", "PAYMENT_DECLINED", "order.payment_declined"),
        ("receipt", "FAILED", "RECEIPT_FAILED", "order.step_failed"),
        ("odnakassa", "FAILED", "BOOKING_FAILED", "order.step_failed"),
    ],
)
@pytest.mark.rule("FB-X2")
async def test_bad_ends(service: Service, sandbox: Sandbox, system: str, outcome: str, status: str, event: str) -> None:
    """What a system refuses ends the journey there, visibly, with its own event."""
    await sandbox.set(system, outcome=outcome)
    order_id = await service.place()
    await service.reach([order_id], status)
    order = await service.order(order_id)
    assert order["final"] is True
    assert order["reason"]
    async with service.wiring.database.engine.connect() as conn:
        last = await conn.scalar(text("SELECT type FROM outbox_event ORDER BY sequence DESC LIMIT 1"))
    assert last == event


async def test_confirmed_within_moments(service: Service) -> None:
    """The poller is woken by the commit, not by its interval: orders in a row wait far less than an interval each."""
    began = time.monotonic()
    for _ in range(20):
        order_id = await service.place()
        await service.reach([order_id], "COMPLETED")
    assert time.monotonic() - began < 20 * service.wiring.settings.tasks["payment_task"].poll_interval / 2


async def test_an_open_order_says_when_to_look_again(service: Service, sandbox: Sandbox) -> None:
    """Retry-After is the time to the step's next attempt; a final order has none."""
    await sandbox.set("insurance", polls_before_final=1)
    order_id = await service.place()
    await asyncio.sleep(0.5)
    answer = await service.client.get(f"/orders/{order_id}")
    assert 1 <= int(answer.headers["retry-after"]) <= 3
    (step,) = answer.json()["steps"]
    assert (step["status"], step["attempts"], step["error"]) == ("IN_PROGRESS", 1, "pending")
    assert step["nextAttemptAt"].endswith("Z")
    await service.reach([order_id], "COMPLETED")
    assert "retry-after" not in (await service.client.get(f"/orders/{order_id}")).headers


NAMES = ["Ярослав", "\N{NO-BREAK SPACE}", "שלום \N{RIGHT-TO-LEFT MARK}", "👩\N{ZERO WIDTH JOINER}💻", "a\u0301"]


async def test_while_an_attempt_is_under_way_its_end_is_near(service: Service, sandbox: Sandbox) -> None:
    """Retry-After does not tell of the lease, which is far longer than most calls."""
    await sandbox.set("insurance", mode="slow", latency_ms=2_000)
    order_id = await service.place()
    async with asyncio.timeout(8):
        while not await sandbox.calls("insurance"):
            await asyncio.sleep(0.02)
    assert (await service.client.get(f"/orders/{order_id}")).headers["retry-after"] == "1"


async def test_text_of_every_language_is_welcome(service: Service, subtests: pytest.Subtests) -> None:
    """Letters, marks, emoji and their joiners come back as they were given."""
    for name in NAMES:
        with subtests.test(name=name):
            order_id = await service.place(customerId=name, items=[{**ORDER["items"][0], "sku": name}])
            order = await service.order(order_id)
            assert (order["customerId"], order["items"][0]["sku"]) == (name, name)


async def test_an_older_order_is_shown_as_it_was_given(service: Service) -> None:
    """What a rule of today would refuse is no reason to hide an order of yesterday."""
    order_id = await service.place()
    async with service.wiring.database.engine.begin() as conn:
        await conn.execute(text("UPDATE orders SET customer_id = :given"), {"given": "c-\x9b"})
    for path in (f"/orders/{order_id}", "/orders"):
        answer = await service.client.get(path)
        assert answer.status_code == 200
        assert "c-\x9b" in answer.text


async def test_customers_and_amounts_are_kept_exactly(service: Service) -> None:
    """Any printable text and any amount comes back as it was sent."""
    items = [{"sku": "Шапка 🧢", "quantity": 10_000, "price": {"amount": "999999999999.99", "currency": "RUB"}}]
    order = await service.order(await service.place(customerId="Ünïcødé ☃", items=items))
    assert (order["customerId"], order["items"]) == ("Ünïcødé ☃", items)
    assert order["total"]["amount"] == "9999999999999900.00"


async def test_cancelling_before_the_payment(service: Service, sandbox: Sandbox) -> None:
    """An order whose confirmation hangs is cancelled at once; a second cancel is a conflict that says why."""
    await sandbox.set("insurance", mode="hang")
    order_id = await service.place()
    answer = await service.client.post(f"/orders/{order_id}/cancel")
    assert (answer.status_code, answer.json()["status"]) == (200, "CANCELLED")
    again = await service.client.post(f"/orders/{order_id}/cancel")
    assert again.status_code == 409
    assert "CANCELLED" in again.json()["detail"]


async def test_cancelling_after_the_payment_was_registered(service: Service, sandbox: Sandbox) -> None:
    """Once sber knows of the payment, cancelling is a conflict and the journey goes on."""
    await sandbox.set("sber", polls_before_final=1)
    order_id = await service.place()
    async with asyncio.timeout(10):
        while not (await service.order(order_id))["paymentUrl"]:
            await asyncio.sleep(0.02)
    answer = await service.client.post(f"/orders/{order_id}/cancel")
    assert answer.status_code == 409
    await service.reach([order_id], "COMPLETED")


async def test_cancel_and_step_race(service: Service, sandbox: Sandbox) -> None:
    """Whoever comes first wins: an order is cancelled and never paid for, or goes on and the cancel is refused."""
    await sandbox.set("insurance", mode="slow", latency_ms=20)
    orders = [await service.place() for _ in range(30)]

    async def cancel(order_id: int, after: float) -> int:
        await asyncio.sleep(after)
        return (await service.client.post(f"/orders/{order_id}/cancel")).status_code

    answers = await asyncio.gather(*(cancel(o, i * 0.01) for i, o in enumerate(orders)))
    expected = {o: "CANCELLED" if code == 200 else "COMPLETED" for o, code in zip(orders, answers, strict=True)}
    assert set(answers) <= {200, 409}
    for order_id, status in expected.items():
        await service.reach([order_id], status)
    paid = await sandbox.operations("sber")
    assert {int(o) for o in paid} == {o for o, status in expected.items() if status == "COMPLETED"}
