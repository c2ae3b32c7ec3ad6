"""Every metric of the service. No id is ever a label, so the number of series does not grow with traffic."""

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

from app.resilience import Policy

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter, which nobody reads

_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_WAITING = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 15, 60, 300, 1800, 7200)

BREAKER_STATES = {"closed": 0, "open": 1, "half_open": 2}

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

orders = Counter("orders", "Orders by the status they entered", ["status"])
order_confirmation = Histogram(
    "order_confirmation_seconds", "From the order's acceptance to its confirmation", buckets=_WAITING
)
outbox_unsent = Gauge("outbox_unsent", "Events not yet published, counted up to 10,000")
outbox_oldest = Gauge("outbox_oldest_seconds", "Age of the oldest event not yet published")
outbox_parked = Gauge("outbox_parked", "Events that could not be published and wait for a person")
rows_deleted = Counter("rows_deleted", "Finished rows deleted after their retention", ["table"])
shutdown = Gauge("shutdown_seconds", "How long the last phase of a shutdown took", ["phase"])


def watch(policy: Policy) -> None:
    """Show a policy's state from now on, and its counters from zero."""
    breaker_state.labels(policy.name).set_function(lambda: BREAKER_STATES[policy.breaker_state])
    bulkhead_in_use.labels(policy.name).set_function(lambda: policy.snapshot().in_use)
    bulkhead_rejected.labels(policy.name)
    for state in BREAKER_STATES:
        breaker_transitions.labels(policy.name, state)


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


def order_entered(status: str) -> None:
    orders.labels(status).inc()
