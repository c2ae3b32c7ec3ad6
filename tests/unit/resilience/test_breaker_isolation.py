import pytest

from app.resilience import Policy, PolicySettings
from app.resilience.events import BreakerChanged, Event
from tests.unit.resilience.calls import SICK, Clock, ask, half_opened, hold, insurance, refused, state


@pytest.mark.rule("CB-4")
async def test_isolated_it_stays_open_until_released() -> None:
    """No time ends an isolation; its release closes the breaker with an empty window."""
    clock = Clock()
    policy = insurance(clock)
    await ask(policy, SICK, times=9)
    policy.isolate()
    clock.now += 10_000
    assert (await refused(policy)).retry_after == 30
    snapshot = policy.snapshot()
    assert (snapshot.state, snapshot.isolated, snapshot.seconds_to_half_open) == ("open", True, None)
    policy.release()
    assert state(policy) == "closed"
    await ask(policy, SICK, times=9)
    assert state(policy) == "closed"


async def test_a_call_in_flight_does_not_end_an_isolation() -> None:
    """Results of calls and trials from before the isolation are late."""
    policy = await half_opened(Clock())
    trials = await hold(policy, 3)
    policy.isolate()
    for trial in trials:
        await trial.end()
    await refused(policy)


async def test_an_open_breaker_can_be_isolated() -> None:
    """The isolation outlasts the 30 s that had begun before it."""
    clock = Clock()
    policy = insurance(clock)
    await ask(policy, SICK, times=10)
    policy.isolate()
    clock.now += 60
    await refused(policy)
    policy.release()
    await ask(policy)


async def test_release_without_isolation_changes_nothing() -> None:
    """A breaker that opened by itself is not closed by a release."""
    policy = insurance(Clock())
    await ask(policy, SICK, times=10)
    policy.release()
    assert state(policy) == "open"


@pytest.mark.parametrize("isolated", [False, True])
async def test_reset_closes_from_any_state(isolated: bool) -> None:
    """A reset ends an opening as well as an isolation."""
    policy = insurance(Clock())
    await ask(policy, SICK, times=10)
    if isolated:
        policy.isolate()
    policy.reset()
    assert (state(policy), policy.snapshot().isolated, policy.snapshot().samples) == ("closed", False, 0)
    await ask(policy)


async def test_reset_of_a_closed_breaker_empties_its_window() -> None:
    """Samples from before the reset, and calls in flight during it, do not count."""
    policy = insurance(Clock())
    (late,) = await hold(policy, 1)
    await ask(policy, SICK, times=9)
    policy.reset()
    await late.end(SICK)
    assert policy.snapshot().samples == 0


@pytest.mark.rule("OBS-3")
async def test_each_transition_is_reported_once() -> None:
    """The events tell from where, to where, and the failure rate of the window that was left."""
    clock, events = Clock(), list[Event]()
    policy = Policy("insurance", PolicySettings(), clock, report=events.append)
    await ask(policy, times=5)
    await ask(policy, SICK, times=5)
    clock.now += 30
    await ask(policy, times=3)
    policy.isolate()
    policy.isolate()
    policy.release()
    policy.reset()
    assert [event for event in events if isinstance(event, BreakerChanged)] == [
        BreakerChanged("insurance", "closed", "open", 0.5, isolated=False),
        BreakerChanged("insurance", "open", "half_open", 0.5, isolated=False),
        BreakerChanged("insurance", "half_open", "closed", 0, isolated=False),
        BreakerChanged("insurance", "closed", "open", 0, isolated=True),
        BreakerChanged("insurance", "open", "closed", 0, isolated=False),
    ]


async def test_while_open_the_snapshot_shows_what_opened_it() -> None:
    """An operator sees the failure rate that tripped the breaker, and the seconds that are left."""
    clock = Clock()
    policy = insurance(clock)
    await ask(policy, times=5)
    await ask(policy, SICK, times=5)
    clock.now += 12
    snapshot = policy.snapshot()
    assert (snapshot.failure_rate, snapshot.samples, snapshot.seconds_to_half_open) == (0.5, 10, 18)


@pytest.mark.rule("CB-X3")
async def test_two_policies_share_nothing() -> None:
    """One system's open breaker does not refuse another system's calls."""
    clock = Clock()
    sber, receipt = Policy("sber", PolicySettings(), clock), Policy("receipt", PolicySettings(), clock)
    await ask(sber, SICK, times=10)
    assert (state(sber), state(receipt)) == ("open", "closed")
    await ask(receipt)
