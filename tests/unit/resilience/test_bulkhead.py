import asyncio
import random
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import pytest

from app.resilience import BulkheadFull, Policy, PolicySettings
from app.resilience.events import BulkheadRejected, Event

reader: ContextVar[str] = ContextVar("reader")


def receipt(capacity: int, events: list[Event] | None = None, **bulkhead: Any) -> Policy:
    heard: list[Event] = [] if events is None else events
    settings = PolicySettings(max_concurrent=capacity, bulkhead=bulkhead)
    return Policy("receipt", settings, report=heard.append)


async def occupy(policy: Policy, count: int, until: asyncio.Event) -> list[asyncio.Task[Any]]:
    calls: list[asyncio.Task[Any]] = [
        asyncio.create_task(policy.call(until.wait, idempotent=False)) for _ in range(count)
    ]
    await asyncio.sleep(0)
    return calls


async def answer() -> str:
    return "answer"


async def is_idle(policy: Policy, capacity: int) -> bool:
    """Whether every slot of the policy can be taken again."""
    snapshot = policy.snapshot()
    everyone_in = asyncio.Barrier(capacity)
    await asyncio.gather(*(policy.call(everyone_in.wait, idempotent=False) for _ in range(capacity)))
    return (snapshot.in_use, snapshot.waiting) == (0, 0)


@pytest.mark.rule("BH-1", "BH-3")
async def test_no_more_calls_run_than_slots_exist() -> None:
    """Of 100 callers on 8 slots 8 at most are with the system; those who get no slot in time are refused."""
    running, most = 0, 0

    async def fn() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.03)
        running -= 1

    policy = receipt(8)
    ends = await asyncio.gather(*(policy.call(fn, idempotent=False) for _ in range(100)), return_exceptions=True)
    assert most == 8
    assert {type(end) for end in ends} == {type(None), BulkheadFull}


@pytest.mark.rule("BH-3", "CB-3")
async def test_refusals_of_the_bulkhead_are_no_samples() -> None:
    """100 refusals leave the breaker's window unchanged, and each is reported."""
    events, free = list[Event](), asyncio.Event()
    policy = receipt(2, events, wait=0.01)
    holders = await occupy(policy, 2, free)
    ends = await asyncio.gather(*(policy.call(answer, idempotent=True) for _ in range(100)), return_exceptions=True)
    assert {type(end) for end in ends} == {BulkheadFull}
    assert [event for event in events if isinstance(event, BulkheadRejected)] == [BulkheadRejected("receipt")] * 100
    snapshot = policy.snapshot()
    assert (snapshot.state, snapshot.samples, snapshot.in_use, snapshot.capacity) == ("closed", 0, 2, 2)
    free.set()
    await asyncio.gather(*holders)
    assert policy.snapshot().samples == 2


@pytest.mark.rule("BH-3")
async def test_a_slot_that_frees_in_time_is_taken() -> None:
    """A caller that waits gets the slot, in the order of arrival."""
    order: list[int] = []

    async def call(number: int) -> None:
        async def fn() -> None:
            order.append(number)
            await asyncio.sleep(0)

        await policy.call(fn, idempotent=False)

    policy = receipt(1)
    await asyncio.gather(*(call(number) for number in range(20)))
    assert order == list(range(20))


@pytest.mark.rule("BH-3")
@pytest.mark.parametrize("pointless", [{"wait": 0}, {"queue": 0}])
async def test_a_pointless_wait_is_refused_at_once(pointless: dict[str, Any]) -> None:
    """Without time or place to wait the refusal comes before the caller is suspended."""
    free = asyncio.Event()
    policy = receipt(1, **pointless)
    holders = await occupy(policy, 1, free)
    refused = policy.call(answer, idempotent=False)
    with pytest.raises(BulkheadFull, match="1 of 1 calls in flight"):
        refused.send(None)
    free.set()
    await asyncio.gather(*holders)


@pytest.mark.rule("BH-3")
async def test_the_queue_is_bounded() -> None:
    """Who comes when the queue is full is refused, those in it are served."""
    free = asyncio.Event()
    policy = receipt(1, queue=2)
    calls = await occupy(policy, 4, free)
    assert (policy.snapshot().in_use, policy.snapshot().waiting) == (1, 2)
    free.set()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(end) for end in ends] == [bool, bool, bool, BulkheadFull]


@pytest.mark.rule("BH-3", "TO-3")
async def test_the_wait_ends_with_the_budget() -> None:
    """A caller without any time left does not queue."""
    free = asyncio.Event()
    policy = receipt(1)
    holders = await occupy(policy, 1, free)
    refused = policy.call(answer, idempotent=False, budget=0.1)
    with pytest.raises(BulkheadFull):
        refused.send(None)
    free.set()
    await asyncio.gather(*holders)


@pytest.mark.rule("BH-2", "BH-X1")
async def test_the_call_runs_in_its_callers_task() -> None:
    """Context variables reach the system's call and what it sets reaches its caller."""
    reader.set("caller")

    async def fn() -> asyncio.Task[Any] | None:
        assert reader.get() == "caller"
        reader.set("system")
        return asyncio.current_task()

    assert await receipt(1).call(fn, idempotent=True) is asyncio.current_task()
    assert reader.get() == "system"


async def test_a_waiting_caller_that_leaves_takes_no_slot_along() -> None:
    """A cancellation while queueing is passed on, and the slot goes to the next in the queue."""
    free = asyncio.Event()
    policy = receipt(1)
    holder, leaver, stayer = await occupy(policy, 3, free)
    leaver.cancel()
    await asyncio.wait([leaver])
    assert leaver.cancelled()
    free.set()
    await asyncio.gather(holder, stayer)
    assert await is_idle(policy, 1)


async def test_a_caller_that_leaves_as_its_slot_comes_passes_it_on() -> None:
    """The slot was handed over already, in the same turn of the loop in which its taker is cancelled."""
    free = asyncio.Event()
    policy = receipt(1)
    holder, leaver, stayer = await occupy(policy, 3, free)
    holder.add_done_callback(lambda _: leaver.cancel())
    free.set()
    await asyncio.wait([holder, leaver, stayer])
    assert stayer.result()
    assert await is_idle(policy, 1)


@pytest.mark.parametrize("seed", range(5))
async def test_a_storm_of_cancellations_loses_no_slot(seed: int) -> None:
    """300 calls with random lengths, budgets and cancellations leave all slots free."""
    chance = random.Random(seed)
    policy = receipt(3, wait=0.02)

    async def call() -> None:
        length = chance.choice([0, 0.001, 0.003])
        with suppress(Exception):
            await policy.call(lambda: asyncio.sleep(length), idempotent=True, budget=chance.choice([None, 0.102]))

    calls = [asyncio.create_task(call()) for _ in range(300)]
    for task in chance.sample(calls, 200):
        await asyncio.sleep(chance.choice([0, 0, 0.0003]))
        task.cancel()
    await asyncio.wait(calls)
    assert any(not task.cancelled() for task in calls)
    assert await is_idle(policy, 3)
