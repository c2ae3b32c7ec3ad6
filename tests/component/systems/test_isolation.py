import asyncio
import random
from contextlib import suppress

import pytest

from app.orders.ports import Confirmation, SystemUnavailable
from app.systems.insurance.adapter import InsuranceAdapter
from app.systems.sber.adapter import SberAdapter
from app.systems.system import open_system
from tests.component.systems import hostile
from tests.component.systems.hostile import response, say, serve
from tests.component.systems.orders import ORDER
from tests.component.systems.sections import TWICE, section

PENDING = say(response(b'{"status":"PENDING","applicationId":"a-1"}'))


@pytest.mark.rule("ISO-1", "ISO-X1", "CB-X3")
async def test_a_hanging_system_leaves_the_others_alone() -> None:
    """With every slot of sber taken by calls that hang, the insurance answers all of its own."""
    async with (
        serve(hostile.hang) as hanging,
        serve(PENDING) as healthy,
        open_system("sber", section(hanging.url, read_timeout=20, total_timeout=30), SberAdapter) as sber,
        open_system("insurance", section(healthy.url, max_concurrent=50), InsuranceAdapter) as insurance,
    ):
        stuck = [asyncio.create_task(sber.adapter.find("p-1", budget=30)) for _ in range(8)]
        await hanging.has_received(8)
        with pytest.raises(SystemUnavailable) as raised:
            await sber.adapter.find("p-1", budget=30)
        assert (raised.value.kind, raised.value.call_made) == ("bulkhead_full", False)
        answers = await asyncio.gather(*(insurance.adapter.confirmation(ORDER, budget=20) for _ in range(50)))
        assert answers == [Confirmation("PENDING")] * 50
        assert (sber.snapshot().connections_in_use, insurance.snapshot().connections_in_use) == (8, 0)
        for task in stuck:
            task.cancel()
        await asyncio.wait(stuck)
        assert sber.snapshot().connections_in_use == 0


@pytest.mark.rule("ISO-1")
async def test_calls_cut_at_any_moment_cost_no_connection() -> None:
    """After 2,000 calls with random deadlines a plain call works, and the pool is idle."""
    async with serve(PENDING) as peer, open_system("insurance", section(peer.url), InsuranceAdapter) as system:
        cut = 0

        async def caller() -> None:
            nonlocal cut
            for _ in range(125):
                try:
                    async with asyncio.timeout(random.uniform(0, 0.01)):
                        await system.adapter.confirmation(ORDER, budget=20)
                except TimeoutError:
                    cut += 1
                except SystemUnavailable as error:
                    assert error.kind == "bulkhead_full"  # noqa: PT017  most calls raise nothing

        await asyncio.gather(*(caller() for _ in range(16)))
        assert 0 < cut < 2_000
        assert await system.adapter.confirmation(ORDER, budget=20) == Confirmation("PENDING")
        at_rest = system.snapshot()
        assert (at_rest.connections_in_use, at_rest.policy.in_use, at_rest.policy.waiting) == (0, 0, 0)
        assert at_rest.policy.state == "closed"


@pytest.mark.rule("SHUT-IDEM")
async def test_closing_a_system_ends_its_calls() -> None:
    """A call in flight when its system is closed ends at once as SystemUnavailable, and so does a later one."""
    async with serve(hostile.hang) as peer:
        patient = section(peer.url, read_timeout=20, total_timeout=30, retry=TWICE)
        async with open_system("insurance", patient, InsuranceAdapter) as system:
            call = asyncio.create_task(system.adapter.confirmation(ORDER, budget=30))
            await peer.has_received()
        async with asyncio.timeout(5):
            with pytest.raises(SystemUnavailable) as cut:
                await call
            with pytest.raises(SystemUnavailable) as late:
                await system.adapter.confirmation(ORDER, budget=30)
    assert cut.value.call_made
    assert (late.value.kind, late.value.call_made) == ("closed", False)
    assert len(peer.received) == 1


async def test_a_system_that_was_never_asked_can_be_closed() -> None:
    """Opening and closing needs no peer."""
    with suppress(SystemUnavailable):
        async with open_system("insurance", section("http://127.0.0.1:1"), InsuranceAdapter) as system:
            assert system.snapshot().condition is None
