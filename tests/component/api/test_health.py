"""Health, metrics and documentation of the running service."""

import asyncio

import asyncpg
import pytest

from tests.service import ORDER, Sandbox, Service, service_running, settings_for


@pytest.mark.rule("HC-1", "HC-4")
async def test_readiness_shows_every_system_and_stays_green(service: Service, sandbox: Sandbox) -> None:
    """An insurance that is down is shown as down, but does not stop the intake."""
    await sandbox.set("insurance", mode="error")
    answer = await service.client.get("/health/ready")
    assert answer.status_code == 200
    systems = answer.json()["systems"]
    assert {name: s["up"] for name, s in systems.items()} == {
        "insurance": False,
        "sber": True,
        "receipt": True,
        "odnakassa": True,
        "orderbook": True,
    }
    assert systems["insurance"]["reason"] == "http_503"


@pytest.mark.rule("HC-4")
async def test_a_required_system_turns_readiness_red(pg_dsn: str, sandbox: Sandbox) -> None:
    """A system that the configuration requires takes the replica out of traffic while it is down."""
    await sandbox.set("sber", mode="error")
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_HEALTH__REQUIRED": '["sber"]'})
    async with service_running(settings) as service:
        answer = await service.client.get("/health/ready")
        assert answer.status_code == 503
        assert answer.json()["problems"] == ["required system sber is down: http_503"]
        assert (await service.client.get("/health/live")).status_code == 200


async def test_a_missing_schema_turns_readiness_red(empty_dsn: str, sandbox: Sandbox) -> None:
    """On a database that was not migrated the service is alive, not ready, and says what to do."""
    async with service_running(settings_for(empty_dsn, sandbox.url), "api") as service:
        answer = await service.client.get("/health/ready")
        assert answer.status_code == 503
        assert "migrate" in answer.json()["problems"][0]


async def test_a_locked_schema_turns_readiness_red(pg_dsn: str, sandbox: Sandbox) -> None:
    """While a migration holds the schema's version, readiness answers in time and in its own form."""
    hasty = {"ORDERS_PG__PING_TIMEOUT": "0.5"}
    async with service_running(settings_for(pg_dsn, sandbox.url, hasty)) as service:
        migration = await asyncpg.connect(pg_dsn)
        async with migration.transaction():
            await migration.execute("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE")
            async with asyncio.timeout(4):  # before pg.lock_timeout
                ready = await service.client.get("/health/ready")
        await migration.close()
        assert (ready.status_code, ready.json()["ready"]) == (503, False)
        assert "the schema's version cannot be read: no answer within 0.5 s" in ready.json()["problems"][0]
        assert (await service.client.get("/health/ready")).status_code == 200


async def test_a_stalled_poller_turns_readiness_red(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a poller's loop dies, readiness is red within moments and green again once it is back."""
    monkeypatch.setattr("app.loop.RESTART_FIRST", 1.0)
    monkeypatch.setattr("app.loop.RESTART_CAP", 0.0)  # any failure counts as the first one
    loop = service.wiring.pollers["payment_task"].claiming
    assert loop._running is not None
    loop._running.cancel()
    await asyncio.wait({loop._running})
    answer = await service.client.get("/health/ready")
    assert answer.status_code == 503
    assert answer.json()["problems"] == ["background loop payment_task claim is stalled"]
    async with asyncio.timeout(5):
        while (await service.client.get("/health/ready")).status_code != 200:
            await asyncio.sleep(0.05)


@pytest.mark.rule("WHERE-X1", "CB-X1")
async def test_a_database_that_is_gone(service: Service, server_dsn: str, pg_dsn: str) -> None:
    """Without its database the service lives, is not ready, refuses orders with 503, and works on when it is back."""
    name = pg_dsn.rsplit("/", 1)[1].split("?", maxsplit=1)[0]
    away = await asyncpg.connect(server_dsn)
    await away.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    await away.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
    assert (await service.client.get("/health/live")).status_code == 200
    ready = await service.client.get("/health/ready")
    assert ready.status_code == 503
    assert "the database cannot be reached" in ready.json()["problems"][-1]
    refused = await service.client.post("/orders", json=ORDER)
    assert (refused.status_code, refused.json()["type"]) == (503, "/problems/unavailable")
    assert refused.headers["retry-after"]
    await away.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    await away.close()
    await service.reach([await service.place()], "COMPLETED", 20)
    assert (await service.client.get("/health/ready")).status_code == 200


@pytest.mark.rule("OBS-1", "ISO-3")
async def test_metrics_name_every_system(service: Service) -> None:
    """After one order there are figures for each system and task table, under their names, and none carries an id."""
    order_id = await service.place()
    await service.reach([order_id], "COMPLETED")
    metrics = (await service.client.get("/metrics")).text
    for system in ("insurance", "sber", "receipt", "odnakassa", "orderbook"):
        assert f'circuit_breaker_state{{system="{system}"}} 0.0' in metrics
        assert "external_call_seconds_count{operation=" in metrics
    assert 'tasks_settled_total{outcome="completed",task="order_confirmation_task"}' in metrics
    assert 'orders_total{status="COMPLETED"}' in metrics
    assert "order_confirmation_seconds_count" in metrics


async def test_the_documentation_is_served(service: Service) -> None:
    """The OpenAPI document tells of problems, not of FastAPI's own error format, and the page that shows it exists."""
    document = (await service.client.get("/openapi.json")).json()
    assert "HTTPValidationError" not in document["components"]["schemas"]
    refused = document["paths"]["/orders"]["post"]["responses"]["422"]["content"]
    assert list(refused) == ["application/problem+json"]
    assert (await service.client.get("/docs")).status_code == 200


@pytest.mark.rule("WHERE-4")
async def test_requests_above_the_limit_are_refused_at_once(pg_dsn: str, sandbox: Sandbox) -> None:
    """More requests at once than configured get 503 with Retry-After; health is answered all the same."""
    settings = settings_for(
        pg_dsn, sandbox.url, {"ORDERS_API__MAX_CONCURRENT_REQUESTS": "2", "ORDERS_API__MAX_STREAMS": "1"}
    )
    async with service_running(settings, "api") as service:
        answers = await asyncio.gather(*(service.client.post("/orders", json=ORDER) for _ in range(30)))
        refused = [a for a in answers if a.status_code == 503]
        assert refused
        assert len(refused) < 30
        assert refused[0].headers["retry-after"]
        assert refused[0].json()["type"] == "/problems/unavailable"
        assert (await service.client.get("/health/live")).status_code == 200
