"""What an open breaker means to those who wait for the system behind it."""

import asyncio

import pytest
from sqlalchemy import text

from tests.component.systems.orders import ORDER as DOMAIN_ORDER
from tests.service import ORDER, Sandbox, Service, service_running, settings_for


@pytest.mark.rule("CB-6", "CB-1")
async def test_an_open_breaker_costs_no_attempt(pg_dsn: str, sandbox: Sandbox) -> None:
    """While it is open its orders wait, untried; once it lets calls through they go on by themselves."""
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_CLIENT__INSURANCE__BREAKER__OPEN_SECONDS": "0.3"})
    async with service_running(settings) as service:
        insurance = service.wiring.systems["insurance"].policy
        insurance.isolate()
        order_id = await service.place()
        row = text(
            "SELECT status, retry_count, lease_token, split_part(last_error, ':', 1) FROM order_confirmation_task"
        )
        async with asyncio.timeout(15), service.wiring.database.engine.connect() as conn:
            while (found := (await conn.execute(row)).one()).lease_token < 6:
                await asyncio.sleep(0.02)
        assert (found.status, found.split_part) == ("PENDING", "circuit_open")
        assert found.retry_count <= 1
        assert await sandbox.calls("insurance") == 0
        insurance.release()
        await service.reach([order_id], "COMPLETED")


@pytest.mark.rule("CB-6")
async def test_the_api_does_not_wait_for_an_open_breaker(service: Service) -> None:
    """With all five breakers open orders are taken in, shown and cancelled, and the service is ready."""
    for system in service.wiring.systems.values():
        system.policy.isolate()
    answer = await service.client.post("/orders", json=ORDER)
    assert answer.status_code == 202
    assert (await service.client.get(answer.headers["location"])).status_code == 200
    assert (await service.client.get("/health/ready")).status_code == 200
    assert (await service.client.post(f"{answer.headers['location']}/cancel")).status_code == 200


@pytest.mark.rule("CB-6")
async def test_an_operation_that_needs_the_answer_at_once_becomes_503(service: Service) -> None:
    """The port error of an open breaker leaves the API as a problem that says when it is worth coming back."""
    insurance = service.wiring.systems["insurance"]

    async def ask() -> None:
        await insurance.adapter.confirmation(DOMAIN_ORDER, budget=5)

    service.server.app.add_api_route("/ask", ask)
    insurance.policy.isolate()
    answer = await service.client.get("/ask")
    assert (answer.status_code, answer.headers["content-type"]) == (503, "application/problem+json")
    assert answer.headers["retry-after"] == "30"
    assert answer.json()["detail"] == "insurance cannot be asked now."
