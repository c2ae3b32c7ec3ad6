import asyncio
from typing import Any

import pytest

from app.resilience import CallTimeout, CircuitOpen, Policy, PolicySettings, Unavailable
from app.resilience.bulkhead import Bulkhead
from app.resilience.call import Call
from app.resilience.settings import BulkheadSettings
from tests.unit.resilience.calls import Clock

TIGHT: dict[str, Any] = {
    "connect_timeout": 0.01,
    "read_timeout": 0.04,
    "total_timeout": 1.05,
    "retry": {"backoff": 0.001, "backoff_cap": 0.002},
}


class Silent:
    """A system that accepts calls and never answers."""

    def __init__(self) -> None:
        self.seen = 0

    async def hang(self) -> None:
        self.seen += 1
        await asyncio.Event().wait()


async def answer() -> str:
    return "answer"


def odnakassa(**settings: Any) -> Policy:
    return Policy("odnakassa", PolicySettings(**{**TIGHT, **settings}), Clock())


async def cut(policy: Policy, *, idempotent: bool = False, budget: float | None = None) -> CallTimeout:
    """Make a call that no system answers."""
    with pytest.raises(CallTimeout) as caught:
        await policy.call(Silent().hang, idempotent=idempotent, budget=budget)
    return caught.value


@pytest.mark.rule("TO-3")
@pytest.mark.parametrize(
    ("budget", "left"),
    [(None, 5.0), (60.0, 5.0), (5.1, 5.0), (2.0, 1.9), (0.1, 0.0), (-3.0, -3.1), (float("nan"), 5.0)],
)
def test_the_callers_budget_caps_the_call(budget: float | None, left: float) -> None:
    """A call may take the smaller of the total timeout and the budget less 100 ms."""
    call = Call(answer, PolicySettings(), Bulkhead("odnakassa", 1, BulkheadSettings()), Clock(), budget)
    assert call.left() == pytest.approx(left)


@pytest.mark.rule("ASYNC-3", "TO-X1")
async def test_a_hanging_system_ends_at_the_attempts_limit() -> None:
    """Though the policy's clock stands still, a call that nobody answers ends, as the attempt's fault."""
    policy = odnakassa()
    error = await cut(policy)
    assert (error.system, error.limit, error.kind, error.call_made) == ("odnakassa", "attempt", "attempt_timeout", True)
    assert policy.snapshot().in_use == 0


@pytest.mark.rule("RE-2")
async def test_an_attempt_that_ran_out_of_time_is_repeated() -> None:
    """Three attempts at a system that hangs, then the timeout of the last."""
    system = Silent()
    with pytest.raises(CallTimeout):
        await odnakassa().call(system.hang, idempotent=True)
    assert system.seen == 3


@pytest.mark.rule("CB-3", "ASYNC-3")
async def test_hanging_opens_the_breaker() -> None:
    """A timeout is a failure, not a cancelled call: ten of them open it."""
    policy = odnakassa(max_concurrent=10)
    ends = await asyncio.gather(
        *(policy.call(Silent().hang, idempotent=False) for _ in range(10)), return_exceptions=True
    )
    assert {type(end) for end in ends} == {CallTimeout}
    with pytest.raises(CircuitOpen):
        await policy.call(answer, idempotent=False)


@pytest.mark.rule("TO-3", "CB-3")
@pytest.mark.parametrize(
    ("budget", "limit", "failures"),
    [(0.105, "budget", 0), (0.13, "budget", 1), (0.15, "budget", 1), (0.16, "attempt", 1)],
)
async def test_a_hasty_caller_does_not_blame_the_system(budget: float, limit: str, failures: int) -> None:
    """A budget that ends before an answer would be slow leaves no sample; a longer one that runs out is a failure."""
    policy = odnakassa()
    error = await cut(policy, budget=budget)
    assert (error.limit, error.call_made, policy.snapshot().samples) == (limit, True, failures)


@pytest.mark.rule("TO-3")
async def test_a_spent_budget_makes_no_call() -> None:
    """The system sees nothing, the breaker neither, and the error says that the call was not made."""
    policy, system = odnakassa(), Silent()
    with pytest.raises(CallTimeout) as caught:
        await policy.call(system.hang, idempotent=True, budget=0.1)
    assert (caught.value.limit, caught.value.call_made, system.seen) == ("budget", False, 0)
    assert policy.snapshot().samples == 0


@pytest.mark.rule("TO-3")
async def test_a_budget_that_runs_out_is_not_extended_by_a_repetition() -> None:
    """A call cut by its budget is over, idempotent or not."""
    policy, system = odnakassa(), Silent()
    with pytest.raises(CallTimeout) as caught:
        await policy.call(system.hang, idempotent=True, budget=0.11)
    assert (caught.value.limit, system.seen) == ("budget", 1)


async def test_a_cancelled_caller_is_cancelled_not_timed_out() -> None:
    """A cancellation is passed on even in the turn of the loop in which the deadline strikes."""
    policy = odnakassa()
    task = asyncio.create_task(policy.call(Silent().hang, idempotent=False))
    await asyncio.sleep(0)
    loop = asyncio.get_running_loop()
    loop.call_at(loop.time() + 0.05, task.cancel)
    await asyncio.wait([task])
    assert task.cancelled() or isinstance(task.exception(), CallTimeout)
    snapshot = policy.snapshot()
    assert (snapshot.in_use, snapshot.samples) == (0, 0 if task.cancelled() else 1)


async def test_the_systems_own_timeout_error_is_left_alone() -> None:
    """A bare TimeoutError from within the call is not taken for the deadline."""

    async def fn() -> None:
        raise TimeoutError("not ours")

    policy = odnakassa()
    with pytest.raises(TimeoutError, match="not ours"):
        await policy.call(fn, idempotent=False)
    assert policy.snapshot().failure_rate == 1


@pytest.mark.rule("ASYNC-3")
async def test_a_call_that_answers_its_cancellation_with_an_error_keeps_it() -> None:
    """A client that turns the deadline's cancellation into its own error is still a failure of the system."""

    async def fn() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Unavailable("odnakassa", "connection aborted") from None

    policy = odnakassa()
    with pytest.raises(Unavailable, match="aborted"):
        await policy.call(fn, idempotent=False)
    assert policy.snapshot().failure_rate == 1


@pytest.mark.rule("TO-3")
async def test_random_deadlines_leave_a_healthy_system_usable() -> None:
    """After 200 calls cut at random moments a plain call works, and nothing is left in use."""
    policy = odnakassa(max_concurrent=50)

    async def brief() -> None:
        await asyncio.sleep(0.003)

    budgets = [0.1 + number % 10 / 1000 for number in range(200)]
    await asyncio.gather(
        *(policy.call(brief, idempotent=True, budget=budget) for budget in budgets), return_exceptions=True
    )
    assert (policy.breaker_state, policy.snapshot().in_use) == ("closed", 0)
    assert await policy.call(answer, idempotent=False) == "answer"
