"""Every metric of the service. No id is ever a label, so the number of series does not grow with traffic."""

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import Counter, Gauge, Histogram, Info, disable_created_metrics

from app import VERSION
from app.observability.traces import exemplar
from app.resilience import Policy

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which nobody reads

_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_REQUESTS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_LAG = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_WAITING = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60, 300, 1800, 7200)

BREAKER_STATES = {"closed": 0, "open": 1, "half_open": 2}
TASK_OUTCOMES = ("sent", "completed", "rescheduled", "deferred", "failed")
CHECK_OUTCOMES = ("done", "left_to_another", "failed")

breaker_state = Gauge("circuit_breaker_state", "0 closed, 1 open, 2 half-open", ["system"])
breaker_transitions = Counter(
    "circuit_breaker_transitions", "Breaker transitions by the state entered", ["system", "to"]
)
retry_attempts = Counter("retry_attempts", "Calls by what the in-memory retry came to", ["system", "outcome"])
bulkhead_rejected = Counter("bulkhead_rejected", "Calls refused because the bulkhead was full", ["system"])
bulkhead_in_use = Gauge("bulkhead_in_use", "Calls inside the bulkhead", ["system"])
external_call = Histogram(
    "external_call_seconds", "Calls to external systems", ["system", "operation", "outcome"], buckets=_LATENCY
)

task_due = Gauge("task_due", "Rows due and not yet claimed, counted up to 10,000", ["task"])
task_oldest_due = Gauge("task_oldest_due_seconds", "Age of the oldest due row", ["task"])
tasks_settled = Counter("tasks_settled", "Settled attempts by outcome", ["task", "outcome"])
lease_lost = Counter("task_lease_lost", "Attempts whose lease had gone when they were settled", ["task"])
loop_stalled = Gauge("loop_stalled", "1 while a background loop that should be turning is not", ["loop"])
loop_restarts = Counter("loop_restarts", "Background loops started again after they failed", ["loop"])

orders = Counter("orders", "Orders by the status they entered", ["status"])
order_confirmation = Histogram(
    "order_confirmation_seconds", "From the order's acceptance to its confirmation", buckets=_WAITING
)
outbox_unsent = Gauge("outbox_unsent", "Events not yet published, counted up to 10,000")
outbox_oldest = Gauge("outbox_oldest_seconds", "Age of the oldest event not yet published")
outbox_parked = Gauge("outbox_parked", "Events that could not be published and wait for a person")

invariant_violations = Gauge(
    "invariant_violations", "What this replica's last look at the data found broken, counted up to 100", ["invariant"]
)
invariant_checks = Counter("invariant_checks", "Looks at the data by what they came to", ["outcome"])
invariants_checked = Gauge("invariants_checked_timestamp_seconds", "When this replica last looked at all the data")

http_request = Histogram(
    "http_request_duration_seconds",
    "Requests until their answer begins, by method, route and status class",
    ["method", "handler", "status"],
    buckets=_REQUESTS,
)
loop_lag = Histogram("event_loop_lag_seconds", "By how much the event loop was late", buckets=_LAG)
pool_size = Gauge("database_pool_size", "Connections that the database pool may open")
pool_in_use = Gauge("database_pool_in_use", "Connections of the database pool that are in use")
pool_waiting = Gauge("database_pool_waiting", "Those who wait for a connection of the database pool")
order_watches = Gauge("order_watches", "Clients that wait for news of an order: event streams and long requests")
log_lines_dropped = Counter("log_lines_dropped", "Log lines lost because nobody took them off standard error")
rows_deleted = Counter("rows_deleted", "Finished rows deleted after their retention", ["table"])
shutdown = Gauge("shutdown_seconds", "How long the last phase of a shutdown took", ["phase"])

Info("orders_build", "The version that runs").info({"version": VERSION})


def watch(policy: Policy) -> None:
    """Show a policy's state from now on, and its counters from zero."""
    breaker_state.labels(policy.name).set_function(lambda: BREAKER_STATES[policy.breaker_state])
    bulkhead_in_use.labels(policy.name).set_function(lambda: policy.snapshot().in_use)
    bulkhead_rejected.labels(policy.name)
    for state in BREAKER_STATES:
        breaker_transitions.labels(policy.name, state)


def start_at_zero(tables: Iterable[str], statuses: Iterable[str]) -> None:
    """Show what has not happened yet: a rate knows a first event only from a zero before it."""
    for table in tables:
        lease_lost.labels(table)
        for outcome in TASK_OUTCOMES:
            tasks_settled.labels(table, outcome)
    for status in statuses:
        orders.labels(status)
    for outcome in CHECK_OUTCOMES:
        invariant_checks.labels(outcome)


def watch_loop(loop: str, stalled: Callable[[], bool]) -> None:
    """Show a background loop's state from now on, and its restarts from zero."""
    loop_stalled.labels(loop).set_function(stalled)
    loop_restarts.labels(loop)


def task_settled(task: str, outcome: str) -> None:
    tasks_settled.labels(task, outcome).inc()


def task_lease_lost(task: str) -> None:
    lease_lost.labels(task).inc()


def task_backlog(task: str, due: int, oldest: float) -> None:
    """`oldest` in seconds."""
    task_due.labels(task).set(due)
    task_oldest_due.labels(task).set(oldest)


def outbox_backlog(unsent: int, oldest: float, parked: int) -> None:
    """`oldest` in seconds."""
    outbox_unsent.set(unsent)
    outbox_oldest.set(oldest)
    outbox_parked.set(parked)


def orders_entered(status: str, number: int = 1) -> None:
    orders.labels(status).inc(number)


def order_confirmed(age: float, traceparent: str | None) -> None:
    """`age` in seconds since the order was accepted, in the trace of `traceparent`."""
    order_confirmation.observe(age, exemplar(traceparent))


def invariants_hold(violations: Mapping[str, int], now: float) -> None:
    """How often each invariant is broken, found at `now`, seconds since 1970."""
    for invariant, count in violations.items():
        invariant_violations.labels(invariant).set(count)
    invariants_checked.set(now)
