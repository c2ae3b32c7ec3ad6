"""Every external system has parts of its own, under one name."""

import asyncio
import re
from typing import Any

import pytest

from app.systems.insurance.adapter import InsuranceAdapter
from app.systems.sber.adapter import SberAdapter
from app.systems.system import open_system
from tests.component.systems import hostile
from tests.component.systems.hostile import response, say, serve
from tests.component.systems.orders import ORDER
from tests.component.systems.sections import section
from tests.rules.sources import called, imported, modules
from tests.service import SYSTEMS, Sandbox, Service

PENDING = say(response(b'{"status":"PENDING","applicationId":"a-1"}'))
HASTY = {"path": "/health", "ttl": 30, "timeout": 0.3}
CLIENT_LIBRARIES = {"aiohttp", "httpx", "httpx_aiohttp"}
CONNECTING = {"AsyncClient", "Client", "ClientSession", "HttpxAiohttpClient", "TCPConnector", "get", "post", "request"}


@pytest.mark.rule("ISO-1", "CB-X3")
async def test_no_two_systems_share_a_part(service: Service) -> None:
    """Client, pool, policy, breaker, bulkhead, adapter and health of the running service: five of each."""
    systems = service.wiring.systems.values()
    for part in ("client", "client._session", "client._connector", "policy", "policy._breaker", "policy._bulkhead"):
        assert len({id(attribute(system, part)) for system in systems}) == len(SYSTEMS), part
    for part in ("adapter", "health", "policy._breaker.state"):
        assert len({id(attribute(system, part)) for system in systems}) == len(SYSTEMS), part


def attribute(of: Any, path: str) -> Any:
    for name in path.split("."):
        of = getattr(of, name)
    return of


@pytest.mark.rule("ISO-1")
async def test_client_and_policy_outlive_the_call() -> None:
    """Twenty calls one after the other use one connection and fill one breaker's window: nothing is built per call."""
    async with serve(PENDING) as peer, open_system("insurance", section(peer.url), InsuranceAdapter) as system:
        for _ in range(20):
            await system.adapter.confirmation(ORDER, budget=20)
        assert system.policy.snapshot().samples == 20
    assert (len(peer.received), peer.connections) == (20, 1)


@pytest.mark.rule("ISO-3", "CFG-3")
async def test_a_system_has_one_name(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    """Folder, section, client, policy, readiness, metrics, the order's steps and the log call a system the same."""
    systems = service.wiring.systems
    expected = {name: name for name in SYSTEMS}
    assert {name: type(system.adapter).__module__.split(".")[2] for name, system in systems.items()} == expected
    assert {name: system.name for name, system in systems.items()} == expected
    assert {name: system.client.system for name, system in systems.items()} == expected
    assert {name: system.policy.name for name, system in systems.items()} == expected
    assert service.wiring.settings.client.keys() == expected.keys()
    assert (await service.client.get("/health/ready")).json()["systems"].keys() == expected.keys()

    order_id = await service.place()
    await service.reach([order_id], "COMPLETED")
    assert [step["system"] for step in (await service.order(order_id))["steps"]] == list(SYSTEMS)
    shown = (await service.client.get("/metrics")).text
    for metric in ("circuit_breaker_state", "bulkhead_in_use", "retry_attempts_total", "external_call_seconds_count"):
        assert set(re.findall(rf'^{metric}{{.*system="(\w+)"', shown, re.MULTILINE)) >= expected.keys(), metric

    for system in systems.values():
        system.policy.isolate()
    told = [record.msg for record in caplog.records if record.levelname == "WARNING" and isinstance(record.msg, dict)]
    assert [line["system"] for line in told if line["event"] == "breaker changed"] == list(systems)


@pytest.mark.rule("ISO-X1", "ISO-1")
async def test_a_hanging_system_stops_only_its_own_step(service: Service, sandbox: Sandbox) -> None:
    """While every slot of the insurance hangs, orders that are past it go on to their end."""
    await sandbox.set("sber", polls_before_final=1)
    passed = [await service.place() for _ in range(5)]
    await service.reach(passed, "CONFIRMED")
    await sandbox.set("insurance", mode="hang")
    slots = service.wiring.settings.client["insurance"].max_concurrent
    stuck = [await service.place() for _ in range(slots + 4)]
    async with asyncio.timeout(10):
        while service.wiring.systems["insurance"].snapshot().connections_in_use < slots:
            await asyncio.sleep(0.02)
    await service.reach(passed, "COMPLETED")
    assert {(await service.order(order_id))["status"] for order_id in stuck} == {"ACCEPTED"}


@pytest.mark.rule("ISO-2", "BH-3", "BH-1")
async def test_the_bulkhead_fills_before_the_pool() -> None:
    """With as many calls in flight as the bulkhead holds, connections are left; one call more is refused."""
    async with serve(hostile.hang) as peer:
        settings = section(peer.url, max_concurrent=5, read_timeout=20, total_timeout=30, health=HASTY)
        async with open_system("sber", settings, SberAdapter) as system:
            calls = [asyncio.create_task(system.adapter.find("p-1", budget=30)) for _ in range(6)]
            await peer.has_received(5)
            (refused,), _ = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
            assert "5 of 5 calls in flight" in str(refused.exception())
            assert system.client.connections_in_use == 5 < settings.pool_size
            assert (await system.health.check()).reason == "timeout"
            for call in calls:
                call.cancel()
            await asyncio.wait(calls)
    assert len(peer.received) == 6


@pytest.mark.rule("ISO-X2")
def test_only_one_module_makes_connections_to_systems() -> None:
    """Connections are made where the limits of a system's section, or of the webhook's, are applied.

    The demo and `systems --url` are clients of this service itself.
    """
    users = {
        name: set(called(path))
        for name, path in modules().items()
        if CLIENT_LIBRARIES & {library.partition(".")[0] for library in imported(path)}
    }
    makers = {name for name, calls in users.items() if CONNECTING & calls and not name.startswith(("demo/", "cli/"))}
    assert makers == {"systems/client.py", "outbox/webhook.py"}
