import asyncio
import dataclasses
import logging

import pytest

from app.resilience import CallTimeout, Policy, PolicySettings, PolicySnapshot, Unavailable
from app.resilience.events import Event


async def answer() -> str:
    return "answer"


async def fail() -> None:
    raise Unavailable("orderbook", "503")


def test_a_new_policy_is_closed_and_idle() -> None:
    """A snapshot shows every figure an operator may ask for."""
    assert Policy("orderbook", PolicySettings(max_concurrent=4)).snapshot() == PolicySnapshot(
        system="orderbook",
        state="closed",
        isolated=False,
        window=50,
        samples=0,
        failure_rate=0.0,
        slow_rate=0.0,
        permits_in_use=0,
        in_use=0,
        waiting=0,
        capacity=4,
        seconds_to_half_open=None,
    )


@pytest.mark.rule("WHERE-1")
async def test_every_attempt_passes_budget_breaker_bulkhead_and_deadline() -> None:
    """Inside the call a slot is taken, the breaker has its sample afterwards, and who does not answer is cut off."""
    policy = Policy("orderbook", PolicySettings())

    async def fn() -> int:
        return policy.snapshot().in_use

    assert await policy.call(fn, idempotent=True) == 1
    assert (policy.snapshot().in_use, policy.snapshot().samples) == (0, 1)
    hasty = Policy("orderbook", PolicySettings(connect_timeout=0.01, read_timeout=0.02))
    for budget, limit in ((None, "attempt"), (0.11, "budget")):
        with pytest.raises(CallTimeout) as cut:
            await hasty.call(asyncio.Event().wait, idempotent=False, budget=budget)
        assert cut.value.limit == limit


@pytest.mark.rule("OBS-X1")
async def test_a_reporter_that_raises_breaks_no_call(caplog: pytest.LogCaptureFixture) -> None:
    """Calls, repetitions and transitions end as they would without it, and the log names every lost event."""

    def report(event: Event) -> None:
        raise ValueError(event)

    settings = PolicySettings(retry={"backoff": 0.001, "backoff_cap": 0.002}, breaker={"minimum_calls": 3, "window": 3})
    policy = Policy("orderbook", settings, report=report)
    assert await policy.call(answer, idempotent=True) == "answer"
    with pytest.raises(Unavailable):
        await policy.call(fail, idempotent=True)
    assert policy.breaker_state == "open"
    lost = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [message.split("(")[0].rpartition(" ")[2] for message in lost] == [
        "CallEnded",
        "Retried",
        "BreakerChanged",
        "CallEnded",
    ]


async def test_events_are_frozen() -> None:
    """A listener cannot change what the next one hears."""
    events: list[Event] = []
    policy = Policy("orderbook", PolicySettings(), report=events.append)
    await policy.call(answer, idempotent=False)
    (event,) = events
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.system = "sber"  # type: ignore[misc]
