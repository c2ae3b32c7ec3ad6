"""Nobody sleeps where somebody waits."""

import asyncio

import pytest

from tests.rules.sources import called, modules
from tests.service import ORDER, SYSTEMS, Sandbox, Service

NO_SLEEP = ("api/", "systems/", "orders/")


@pytest.mark.rule("ASYNC-1", "ASYNC-X1", "FB-1")
async def test_no_request_waits_for_a_system(service: Service, sandbox: Sandbox) -> None:
    """While every system hangs, 20 orders are taken in, shown and cancelled; none of it needs an answer of theirs."""
    for system in SYSTEMS:
        await sandbox.set(system, mode="hang")
    limits = service.wiring.settings.client["insurance"]
    async with asyncio.timeout(limits.total_timeout + 10):
        places = [(await service.client.post("/orders", json=ORDER)).headers["location"] for _ in range(20)]
        shown = [(await service.client.get(place)).json()["status"] for place in places]
        cancelled = [(await service.client.post(f"{place}/cancel")).json()["status"] for place in places]
    assert (set(shown), set(cancelled)) == ({"ACCEPTED"}, {"CANCELLED"})


@pytest.mark.rule("ASYNC-X1", "ASYNC-X2", "ASYNC-2")
def test_handlers_adapters_and_steps_never_sleep() -> None:
    """The one wait between two calls to a system is the policy's, whose sum the configuration keeps below 2 s."""
    sleepers = {name for name, path in modules().items() if {"sleep", "wait_for"} & set(called(path))}
    assert {name for name in sleepers if name.startswith(NO_SLEEP)} == set()
    assert "tasks/poller.py" in sleepers
    assert not {name for name in sleepers if name.startswith("resilience/")}
