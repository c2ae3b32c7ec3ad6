"""What the service offers instead of an answer that it does not have: the truth, and a task."""

import asyncio
import json
from typing import Any

import pytest
from sqlalchemy import text

from app.orders.ports import SystemUnavailable
from app.orders.snapshot import load_payload
from app.systems.sber.adapter import SberAdapter
from app.systems.system import open_system
from tests.component.systems.hostile import response, say, serve
from tests.component.systems.sections import section
from tests.service import ORDER, Sandbox, Service

STEPS = {
    "insurance": ("order_confirmation_task", "ACCEPTED"),
    "sber": ("payment_task", "CONFIRMED"),
    "receipt": ("receipt_creation_task", "PAID"),
    "odnakassa": ("booking_task", "RECEIPT_ISSUED"),
    "orderbook": ("orderbook_task", "BOOKED"),
}


async def last_error(service: Service, table: str) -> str:
    """Wait for the first failed attempt of the only order's task; returns the kind of its error."""
    async with asyncio.timeout(15), service.wiring.database.engine.connect() as conn:
        while not (error := await conn.scalar(text(f"SELECT last_error FROM {table} WHERE last_error IS NOT NULL"))):
            await asyncio.sleep(0.02)
    return str(error).split(":")[0]


@pytest.mark.rule("FB-1", "FB-2")
async def test_a_queued_order_says_that_it_is_queued(service: Service, sandbox: Sandbox) -> None:
    """With the insurance down the order is taken in, and shown as what it is: not final, tried, failed, tried again."""
    await sandbox.set("insurance", mode="error")
    answer = await service.client.post("/orders", json=ORDER)
    assert (answer.status_code, answer.json()["status"]) == (202, "queued")
    assert await last_error(service, "order_confirmation_task") == "http_503"
    order = await service.order(answer.json()["orderId"])
    assert (order["status"], order["final"]) == ("ACCEPTED", False)
    (step,) = order["steps"]
    assert (step["status"], step["attempts"], step["error"]) == ("PENDING", 1, "http_503")
    assert step["nextAttemptAt"]


@pytest.mark.rule("FB-1", "FB-2")
async def test_a_condition_from_memory_tells_its_age(service: Service, sandbox: Sandbox) -> None:
    """Readiness answers from its last look at a system, and says how many seconds ago that was."""
    before = (await service.client.get("/health/ready")).json()["systems"]["sber"]
    await sandbox.set("sber", mode="error")
    await asyncio.sleep(0.3)
    after = (await service.client.get("/health/ready")).json()["systems"]["sber"]
    assert (before["up"], after["up"]) == (True, True)
    assert after["age"] > before["age"]


@pytest.mark.rule("FB-X1", "FB-X2", "WHERE-1")
@pytest.mark.parametrize("system", STEPS)
async def test_an_answer_that_cannot_be_read_means_nothing(service: Service, sandbox: Sandbox, system: str) -> None:
    """HTML with status 200 is never taken for a yes, a no or a default: the order stays where it was, to the kopeck."""
    table, stays = STEPS[system]
    await sandbox.set(system, mode="garbage")
    order_id = await service.place()
    assert await last_error(service, table) == "unexpected_answer"
    order = await service.order(order_id)
    assert (order["status"], order["final"]) == (stays, False)
    assert order["total"] == {"amount": "3980.00", "currency": "RUB"}
    assert order["steps"][-1]["task"] == table
    assert await sandbox.operations(system) == {}


def without_money() -> list[dict[str, Any]]:
    (item,) = ORDER["items"]
    prices = [None, {}, {"currency": "RUB"}, {"amount": None, "currency": "RUB"}, {"amount": "1"}]
    prices += [{"amount": zero, "currency": "RUB"} for zero in ("0", "0.00", "0.0", "-0")]
    return [{**ORDER, "items": [{**item, "price": price}]} for price in prices] + [{**ORDER, "items": [{"sku": "a"}]}]


@pytest.mark.rule("FB-X1")
async def test_no_price_is_made_up(service: Service, sandbox: Sandbox) -> None:
    """An order with a price that is missing, null or zero is refused: nothing is filled in."""
    for body in without_money():
        assert (await service.client.post("/orders", json=body)).status_code == 422, body
    assert await sandbox.calls("insurance") == 0


@pytest.mark.rule("FB-X1")
@pytest.mark.parametrize(
    "price", [None, {}, {"amount": None, "currency": "RUB"}, {"amount": "1.00"}, {"currency": "RUB"}]
)
def test_a_task_without_an_amount_is_unreadable(price: object) -> None:
    """A step whose payload has lost its money asks for nothing, instead of asking for nothing's worth."""
    payload = {"customer_id": "c-42", "status": "CONFIRMED", "details": {}}
    items = [{"sku": "seat", "quantity": 1, "price": price}]
    with pytest.raises(ValueError, match="validation error"):
        load_payload(1, json.dumps({**payload, "items": items}))


@pytest.mark.rule("FB-X3", "CB-X3")
async def test_a_second_provider_would_have_its_own_breaker() -> None:
    """There is none today: a system is opened under a name, and one adapter under two names gets all parts twice."""
    async with (
        serve(say(response(status="503 Closed"))) as down,
        serve(say(response(b'{"id":"p-1","status":"PAID"}'))) as up,
        open_system("sber", section(down.url), SberAdapter) as first,
        open_system("sber_reserve", section(up.url), SberAdapter) as second,
    ):
        for _ in range(10):
            with pytest.raises(SystemUnavailable):
                await first.adapter.find("p-1", budget=20)
        assert (first.policy.breaker_state, second.policy.breaker_state) == ("open", "closed")
        assert (await second.adapter.find("p-1", budget=20)).status == "PAID"
        assert len(down.received) == 10


@pytest.mark.rule("FB-X3")
def test_every_system_has_one_provider(service: Service) -> None:
    """Each step asks one system, and no two steps the same: nothing falls back to another provider."""
    assert [step.system for step in service.wiring.steps] == list(STEPS)
    assert len({system.client._base_url for system in service.wiring.systems.values()}) == len(STEPS)
