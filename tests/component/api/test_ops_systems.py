"""What operators see and do, on the whole service."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.service import SYSTEMS, Sandbox, Service, service_running, settings_for

QUICK_BREAKER = {"ORDERS_CLIENT__DEFAULT__BREAKER__OPEN_SECONDS": "1"}


@pytest.fixture
async def quick(pg_dsn: str, sandbox: Sandbox) -> AsyncIterator[Service]:
    """A service whose breakers open for a second, so that deferred tasks come back soon."""
    async with service_running(settings_for(pg_dsn, sandbox.url, QUICK_BREAKER)) as service:
        yield service


async def shown(service: Service, system: str) -> dict[str, Any]:
    return dict((await service.client.get("/ops/systems")).json()["systems"][system])


async def change(service: Service, system: str, what: str) -> dict[str, Any]:
    answer = await service.client.post(f"/ops/systems/{system}/{what}")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def until_shown(service: Service, system: str, so: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Wait until the system is shown so."""
    async with asyncio.timeout(15):
        while not so(found := await shown(service, system)):
            await asyncio.sleep(0.02)
    return found


@pytest.mark.rule("OBS-1", "HC-1", "ISO-1", "ISO-3")
async def test_every_system_is_shown(service: Service) -> None:
    """Breaker, bulkhead, pool and health of each system stand under its name, sized as configured."""
    await service.reach([await service.place()], "COMPLETED")
    answer = await service.client.get("/ops/systems")
    assert answer.status_code == 200
    systems = answer.json()["systems"]
    assert list(systems) == list(SYSTEMS)
    for name, system in systems.items():
        client = service.wiring.settings.client[name]
        assert system["system"] == name
        samples = system["breaker"].pop("samples")
        assert samples >= 1
        assert system["breaker"] == {
            "state": "closed",
            "isolated": False,
            "window": 50,
            "failureRate": 0,
            "slowRate": 0,
            "permitsInUse": 0,
            "secondsToHalfOpen": None,
        }
        assert system["bulkhead"] == {"capacity": client.max_concurrent, "inUse": 0, "waiting": 0}
        assert system["pool"] == {"size": client.pool_size, "inUse": 0}
        assert (system["health"]["up"], system["health"]["reason"]) == (True, None)
        assert 0 <= system["health"]["age"] <= client.health.ttl
    assert len({system["replica"] for system in systems.values()}) == 1


@pytest.mark.rule("OBS-1", "BH-1")
async def test_a_hanging_system_is_seen_to_be_full(service: Service, sandbox: Sandbox) -> None:
    """With as many calls under way as there may be, bulkhead and pool say so, and the other systems are untouched."""
    await sandbox.set("insurance", mode="hang")
    for _ in range(12):
        await service.place()
    full = await until_shown(service, "insurance", lambda s: s["bulkhead"]["inUse"] == 8)
    assert full["pool"] == {"size": 10, "inUse": 8}
    assert full["health"]["up"] is False
    assert (await shown(service, "sber"))["bulkhead"]["inUse"] == 0


@pytest.mark.rule("CB-6", "OBS-1")
async def test_an_isolated_system_is_left_alone(quick: Service, sandbox: Sandbox) -> None:
    """Not one call goes out and no attempt is lost; once released, the order goes its way."""
    isolated = await change(quick, "insurance", "isolate")
    assert (isolated["breaker"]["state"], isolated["breaker"]["isolated"]) == ("open", True)
    assert isolated["breaker"]["secondsToHalfOpen"] is None
    order_id = await quick.place()
    async with asyncio.timeout(10):
        while (step := (await quick.order(order_id))["steps"][0])["error"] != "circuit_open":
            await asyncio.sleep(0.02)
    await asyncio.sleep(2.5)
    assert (step["status"], step["attempts"]) == ("PENDING", 0)
    assert await sandbox.calls("insurance") == 0
    assert 'circuit_breaker_state{system="insurance"} 1.0' in (await quick.client.get("/metrics")).text

    released = await change(quick, "insurance", "release")
    assert (released["breaker"]["state"], released["breaker"]["isolated"]) == ("closed", False)
    await quick.reach([order_id], "COMPLETED")


async def test_an_isolation_is_one_replicas_own(pg_dsn: str, sandbox: Sandbox, service: Service) -> None:
    """What another replica does with the system does not change: each has to be told."""
    await change(service, "insurance", "isolate")
    async with service_running(settings_for(pg_dsn, sandbox.url, QUICK_BREAKER), "worker") as other:
        assert (await shown(other, "insurance"))["breaker"]["state"] == "closed"
        await change(other, "sber", "isolate")
        assert (await shown(service, "sber"))["breaker"]["state"] == "closed"
        assert (await other.client.get("/orders/1")).status_code == 404


@pytest.mark.rule("CB-6", "OBS-3")
async def test_an_open_breaker_is_seen_and_reset(
    service: Service, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    """The rates that opened it and the time it has left are shown; a reset closes it with nothing remembered."""
    await sandbox.set("sber", mode="error")
    for _ in range(5):
        await service.place()
    opened = (await until_shown(service, "sber", lambda s: s["breaker"]["state"] == "open"))["breaker"]
    assert opened["failureRate"] >= 0.3
    assert opened["samples"] >= 10
    assert 0 < opened["secondsToHalfOpen"] <= 30
    assert opened["isolated"] is False
    await sandbox.set("sber", mode="ok")
    assert (await change(service, "sber", "release"))["breaker"]["state"] == "open"

    caplog.set_level(logging.INFO)
    caplog.clear()
    closed = (await change(service, "sber", "reset"))["breaker"]
    assert (closed["state"], closed["samples"], closed["failureRate"]) == ("closed", 0, 0)
    lines = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    assert [line["event"] for line in lines if line.get("system") == "sber"] == [
        "breaker changed",
        "operator changed a system",
    ]
    assert lines[-1]["caller"] == "anonymous"


async def test_an_isolation_survives_a_reset_of_another_system(service: Service) -> None:
    """Each control is about the one system that it names."""
    await change(service, "insurance", "isolate")
    await change(service, "sber", "reset")
    assert (await shown(service, "insurance"))["breaker"]["isolated"] is True
    assert (await change(service, "insurance", "reset"))["breaker"]["isolated"] is False


async def test_a_replica_that_does_not_call_a_system_says_so(pg_dsn: str, sandbox: Sandbox) -> None:
    """It shows where the breakers are that count, and refuses to change its own; a worker does so for what is left to
    others."""
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_TASKS__BOOKING_TASK__ENABLED": "false"})
    async with service_running(settings, "api") as api, service_running(settings, "worker") as worker:
        for system in SYSTEMS:
            assert "each worker" in (await shown(api, system))["note"]
            assert ((await shown(worker, system))["note"] is None) == (system != "odnakassa")
        assert (await worker.client.post("/ops/systems/odnakassa/isolate")).status_code == 409
        for what in ("isolate", "release", "reset"):
            refused = await api.client.post(f"/ops/systems/sber/{what}", json={"reason": "a drill"})
            assert (refused.status_code, refused.json()["type"]) == (409, "/problems/not-called-here")
            assert "each worker" in refused.json()["detail"]
        assert (await shown(api, "sber"))["breaker"]["isolated"] is False
        assert (await api.client.get("/ops/actions")).json()["actions"] == []
        assert (await change(worker, "sber", "isolate"))["breaker"]["isolated"] is True


async def test_an_unknown_system_is_not_found(service: Service, subtests: pytest.Subtests) -> None:
    """The answer is a problem that names those there are."""
    for what in ("isolate", "release", "reset"):
        with subtests.test(what=what):
            answer = await service.client.post(f"/ops/systems/insurence/{what}")
            assert answer.status_code == 404
            assert answer.headers["content-type"] == "application/problem+json"
            assert ", ".join(SYSTEMS) in answer.json()["detail"]


@pytest.mark.rule("WHERE-4")
async def test_an_operator_gets_through_when_all_is_full(pg_dsn: str, sandbox: Sandbox) -> None:
    """While requests are refused for their number, systems can still be looked at and isolated."""
    full = {"ORDERS_API__MAX_CONCURRENT_REQUESTS": "2", "ORDERS_API__MAX_STREAMS": "1"}
    async with service_running(settings_for(pg_dsn, sandbox.url, full)) as service:
        half = (
            b"POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
        )
        writers = [(await asyncio.open_connection("127.0.0.1", service.client.base_url.port))[1] for _ in range(2)]
        for writer in writers:
            writer.write(half)
        async with asyncio.timeout(5):
            while (await service.client.get("/orders/1")).status_code != 503:
                await asyncio.sleep(0.02)
        assert (await change(service, "sber", "isolate"))["breaker"]["isolated"] is True
        for writer in writers:
            writer.close()


async def test_operations_are_described(service: Service) -> None:
    """The OpenAPI document has them under `ops`, and says how far one replica reaches."""
    paths = (await service.client.get("/openapi.json")).json()["paths"]
    operations = {f"{method} {path}": o for path, methods in paths.items() for method, o in methods.items()}
    ops = {name: o for name, o in operations.items() if " /ops/" in name}
    assert len(ops) == 8
    for operation in ops.values():
        assert operation["tags"] == ["ops"]
    assert "Other replicas" in ops["post /ops/systems/{name}/isolate"]["description"]
    assert {"404", "409"} <= ops["post /ops/tasks/{task}/{task_id}/retry"]["responses"].keys()
