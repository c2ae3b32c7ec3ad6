import asyncio
from dataclasses import replace

import pytest

from app.systems.client import Client
from app.systems.health import Condition, Health
from app.systems.insurance.adapter import InsuranceAdapter
from app.systems.system import open_system
from tests.component.systems import hostile
from tests.component.systems.hostile import Received, response, say, serve
from tests.component.systems.orders import ORDER
from tests.component.systems.sections import section

UP = say(response(b'{"status":"UP"}'))
PROBE = {"path": "/health", "ttl": 30.0, "timeout": 10.0}
HASTY = {**PROBE, "timeout": 0.3}


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.rule("HC-2", "HC-3", "HC-X1", "HC-X2")
async def test_a_minute_of_readiness_is_three_probes() -> None:
    """1,000 checks within a minute, ten at a time, ask the system three times at most."""
    clock = Clock()
    async with serve(UP) as peer:
        client = Client("insurance", section(peer.url))
        health = Health(client, section(peer.url, health=PROBE).health, clock)
        for _ in range(100):
            checked = await asyncio.gather(*(health.check() for _ in range(10)))
            assert all(condition.up and condition.age < 30 for condition in checked)
            clock.now += 0.6
        await client.aclose()
    assert len(peer.received) == 2
    assert {(request.method, request.path) for request in peer.received} == {("GET", "/health")}


@pytest.mark.rule("HC-2")
async def test_a_condition_is_believed_for_its_time_and_no_longer() -> None:
    """The age is told, and at 30 s the system is asked again."""
    clock = Clock()
    async with serve(UP) as peer:
        client = Client("insurance", section(peer.url))
        health = Health(client, section(peer.url, health=PROBE).health, clock)
        assert health.last is None
        assert await health.check() == Condition(up=True, reason=None, checked_at=1_000.0)
        clock.now += 29.9
        assert (await health.check()).age == pytest.approx(29.9)
        clock.now += 0.1
        assert await health.check() == Condition(up=True, reason=None, checked_at=1_030.0)
        await client.aclose()
    assert len(peer.received) == 2


@pytest.mark.rule("HC-1")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (hostile.hang, "timeout"),
        (hostile.drip_body, "timeout"),
        (hostile.reset, "connection_lost"),
        (say(response(status="503 No")), "http_503"),
        (say(response(status="404 No")), "http_404"),
        (say(response(status="302 Found", Location="/login")), "redirect"),
        (say(b"noise\r\n\r\n"), "not_http"),
    ],
)
async def test_a_system_that_does_not_say_2xx_is_down(answer: hostile.Answer, reason: str) -> None:
    """Whatever is wrong, the check ends, and says down and why."""
    async with serve(answer) as peer:
        client = Client("insurance", section(peer.url))
        health = Health(client, section(peer.url, health=HASTY if reason == "timeout" else PROBE).health)
        async with asyncio.timeout(30):
            condition = await health.check()
        assert (condition.up, condition.reason) == (False, reason)
        assert client.connections_in_use == 0
        await client.aclose()


async def test_a_system_that_comes_back_is_noticed() -> None:
    """Down is believed no longer than up."""
    clock = Clock()
    async with serve(UP) as peer:
        pass
    client = Client("insurance", section(peer.url))
    health = Health(client, section(peer.url, health=PROBE).health, clock)
    assert (await health.check()).reason == "connect"
    port = int(peer.url.rpartition(":")[2])
    server = await asyncio.start_server(lambda _, writer: _greet(writer), "127.0.0.1", port)
    assert not (await health.check()).up
    clock.now += 30
    assert (await health.check()).up
    await client.aclose()
    server.close()
    await server.wait_closed()


async def _greet(writer: asyncio.StreamWriter) -> None:
    writer.write(response(b"{}", Connection="close"))
    await writer.drain()
    writer.close()


async def test_a_caller_that_leaves_does_not_end_the_probe() -> None:
    """The probe is shared: one caller's cancellation is no other's."""
    go = asyncio.Event()

    async def slow(_: Received, writer: asyncio.StreamWriter) -> None:
        await go.wait()
        writer.write(response(b"{}"))
        await writer.drain()

    async with serve(slow) as peer:
        client = Client("insurance", section(peer.url))
        health = Health(client, section(peer.url, health=PROBE).health)
        leaving, staying = asyncio.create_task(health.check()), asyncio.create_task(health.check())
        await peer.has_received()
        leaving.cancel()
        await asyncio.wait({leaving})
        go.set()
        assert (await staying).up
        assert leaving.cancelled()
        await client.aclose()
    assert len(peer.received) == 1


@pytest.mark.rule("HC-3", "ISO-2", "CB-1", "OAS-1")
async def test_a_probe_needs_none_of_the_slots_that_hang() -> None:
    """With as many calls hanging as the bulkhead allows and the breaker isolated, the probe still gets its answer."""

    async def half_dead(request: Received, writer: asyncio.StreamWriter) -> None:
        await (UP if request.path == "/health" else hostile.hang)(request, writer)

    async with serve(half_dead) as peer:
        settings = section(peer.url, read_timeout=20, total_timeout=30, health=PROBE, max_concurrent=4)
        async with open_system("insurance", settings, InsuranceAdapter) as system:
            stuck = [asyncio.create_task(system.adapter.confirmation(ORDER, budget=30)) for _ in range(8)]
            await peer.has_received(4)
            system.policy.isolate()
            assert (await system.health.check()).up
            condition = system.snapshot().condition
            assert condition is not None
            assert condition.up
            assert system.policy.snapshot().samples == 0
            for call in stuck:
                call.cancel()
            await asyncio.wait(stuck)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_closing_a_system_waits_for_its_probe(scheme: str) -> None:
    """A system closed while its probe hangs, in the answer or in the handshake, leaves no probe behind."""
    async with serve(hostile.hang) as peer:
        settings = section(peer.url.replace("http", scheme), health=HASTY, read_timeout=20, total_timeout=30)
        async with open_system("insurance", settings, InsuranceAdapter) as system:
            waiting = asyncio.create_task(system.health.check())
            await peer.has_connected()
        assert system.health.last is not None
        assert await waiting == replace(system.health.last, age=0.0)
