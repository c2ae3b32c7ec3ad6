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
    """An external system as one replica sees it: breaker, bulkhead and pool are each process's own."""

    system: Name
    replica: Text
    breaker: BreakerView
    bulkhead: BulkheadView
    pool: PoolView
    health: ConditionView | None


class SystemsView(View):
    systems: Annotated[dict[str, SystemView], told(maxProperties=100)]


def system_view(snapshot: SystemSnapshot, *, connections: int, replica: str) -> SystemView:
    policy, condition = snapshot.policy, snapshot.condition
    return SystemView(
        system=policy.system,
        replica=replica,
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
