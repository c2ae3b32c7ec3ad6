"""Readiness and liveness under many probes, and without the systems they tell of."""

import asyncio

import pytest

from tests.service import SYSTEMS, Sandbox, Service, service_running, settings_for


@pytest.mark.slow
@pytest.mark.rule("HC-2", "HC-X1", "HC-X2", "HC-3")
async def test_a_thousand_readiness_probes_are_a_single_look_at_each_system(service: Service, sandbox: Sandbox) -> None:
    """1,000 probes, 50 at a time, ask each system's health once, or twice if 30 s pass, and no business operation."""
    for _ in range(20):
        answers = await asyncio.gather(*(service.client.get("/health/ready") for _ in range(50)))
        assert {answer.status_code for answer in answers} == {200}
    for system in SYSTEMS:
        calls = (await sandbox.control(system))["counters"]["calls"]
        assert 1 <= calls.pop("GET /health") <= 3, system
        assert set(calls.values()) == {0}, system


@pytest.mark.rule("HC-1", "HC-4")
async def test_all_systems_may_be_gone(pg_dsn: str, sandbox: Sandbox) -> None:
    """With every system hanging the service is alive and ready, and readiness says of each that it is down, and why."""
    for system in SYSTEMS:
        await sandbox.set(system, mode="hang")
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_CLIENT__DEFAULT__HEALTH__TIMEOUT": "0.2"})
    async with service_running(settings) as service:
        assert (await service.client.get("/health/live")).status_code == 200
        assert [await sandbox.calls(system) for system in SYSTEMS] == [0] * len(SYSTEMS)
        ready = await service.client.get("/health/ready")
    assert ready.status_code == 200
    shown = ready.json()["systems"]
    assert {name: (system["up"], system["reason"]) for name, system in shown.items()} == dict.fromkeys(
        SYSTEMS, (False, "timeout")
    )


@pytest.mark.rule("HC-4")
@pytest.mark.parametrize("required", SYSTEMS)
async def test_configuration_says_whose_outage_counts(pg_dsn: str, sandbox: Sandbox, required: str) -> None:
    """Readiness turns red for a system that is required, whichever it is; liveness never does."""
    for system in SYSTEMS:
        await sandbox.set(system, mode="error")
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_HEALTH__REQUIRED": f'["{required}"]'})
    async with service_running(settings, "api") as service:
        ready = await service.client.get("/health/ready")
        assert (await service.client.get("/health/live")).status_code == 200
    assert ready.status_code == 503
    assert ready.json()["problems"] == [f"required system {required} is down: http_503"]
