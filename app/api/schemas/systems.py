"""External systems as one replica sees them."""

from typing import Annotated

from app.api.schemas.wire import Count, Name, Seconds, Share, Text, View, told
from app.resilience.events import BreakerState
from app.systems.health import Condition
from app.systems.system import SystemSnapshot


class BreakerView(View):
    """`window`: samples it holds at most; the rates, while it is open, are those that opened it."""

    state: BreakerState
    isolated: bool
    window: Count
    samples: Count
    failure_rate: Share
    slow_rate: Share
    permits_in_use: Count
    seconds_to_half_open: Seconds | None


class BulkheadView(View):
    capacity: Count
    in_use: Count
    waiting: Count


class PoolView(View):
    size: Count
    in_use: Count


class ConditionView(View):
    """What the last health probe found, `age` seconds ago."""

    up: bool
    reason: Text | None
    age: Seconds


class SystemView(View):
    """An external system as one replica sees it: breaker, bulkhead and pool are each process's own.

    `note` is there if the replica does not call the system, so that they tell nothing: it says which replicas do.
    """

    system: Name
    replica: Text
    note: Text | None
    breaker: BreakerView
    bulkhead: BulkheadView
    pool: PoolView
    health: ConditionView | None


class SystemsView(View):
    systems: Annotated[dict[str, SystemView], told(maxProperties=100)]


def not_called(*systems: str) -> str:
    """What is said where a replica's breakers tell nothing."""
    return (
        f"This replica works on no tasks of {', '.join(systems)}, and makes no calls there but health probes. "
        "The breakers that count are the workers': each worker shows and changes its own at its /ops."
    )


def system_view(snapshot: SystemSnapshot, *, connections: int, replica: str, called: bool) -> SystemView:
    policy, condition = snapshot.policy, snapshot.condition
    return SystemView(
        system=policy.system,
        replica=replica,
        note=None if called else not_called(policy.system),
        breaker=BreakerView(
            state=policy.state,
            isolated=policy.isolated,
            window=policy.window,
            samples=policy.samples,
            failure_rate=round(policy.failure_rate, 3),
            slow_rate=round(policy.slow_rate, 3),
            permits_in_use=policy.permits_in_use,
            seconds_to_half_open=policy.seconds_to_half_open,
        ),
        bulkhead=BulkheadView(capacity=policy.capacity, in_use=policy.in_use, waiting=policy.waiting),
        pool=PoolView(size=connections, in_use=snapshot.connections_in_use),
        health=None if condition is None else _condition_view(condition),
    )


def _condition_view(condition: Condition) -> ConditionView:
    return ConditionView(up=condition.up, reason=condition.reason, age=round(condition.age, 1))
