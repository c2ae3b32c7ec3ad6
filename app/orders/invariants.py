"""What holds in the data at any moment, whatever has just failed. Each statement looks at one snapshot."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncConnection

from app.orders.journey import STEPS
from app.orders.order import OrderStatus as S
from app.settings import EventSettings, TaskSettings

MOST = 100
"""Violations shown of each invariant."""

LOCK = 7_305_180_116
"""The advisory lock of whoever looks by the clock: one replica at a time."""

TASKS: dict[S, str] = {
    S.ACCEPTED: "A----",
    S.CONFIRMED: "CA---",
    S.PAID: "CCA--",
    S.RECEIPT_ISSUED: "CCCA-",
    S.BOOKED: "CCCCA",
    S.COMPLETED: "CCCCC",
    S.REJECTED: "C----",
    S.PAYMENT_DECLINED: "CC---",
    S.CANCELLED: "C----|CC---",
    S.CONFIRMATION_FAILED: "F----",
    S.PAYMENT_FAILED: "CF---",
    S.RECEIPT_FAILED: "CCF--",
    S.BOOKING_FAILED: "CCCF-",
    S.RECORD_FAILED: "CCCCF",
}
"""By an order's status, its task in each of the five steps: Active, Completed, Failed, or - for none."""


@dataclass(frozen=True, slots=True)
class Invariant:
    """`why` says what it would mean if the statement, which selects `order_id` and what was `found`, found a row."""

    name: str
    why: str
    statement: TextClause


@dataclass(frozen=True, slots=True)
class Violation:
    invariant: Invariant
    order_id: int
    found: str


_TABLES = [step.table for step in STEPS]

# Clocks are read when a row is looked at: what it holds was written before.
_FRAGMENTS = {
    "now": "clock_timestamp()",
    "active": "status IN ('PENDING', 'IN_PROGRESS')",
    "letters": " || ".join(f"coalesce(translate(left({table}.status, 1), 'PI', 'AA'), '-')" for table in _TABLES),
    "tasks_of_orders": " ".join(f"LEFT JOIN {table} ON {table}.order_id = orders.id" for table in _TABLES),
    "all_tasks": "({}) AS task JOIN unnest({}) AS rules (name, horizon, max_attempts) USING (name)".format(
        " UNION ALL ".join(f"SELECT '{table}' AS name, * FROM {table}" for table in _TABLES),  # noqa: S608
        "CAST(:tables AS text[]), CAST(:horizons AS float8[]), CAST(:max_attempts AS int[])",
    ),
}


def _invariant(name: str, why: str, statement: str) -> Invariant:
    return Invariant(name, why, text(f"{statement.format(**_FRAGMENTS)}\nLIMIT {MOST}"))


INVARIANTS = (
    _invariant(
        "tasks fit the status",
        "nobody works on an order that is under way, or somebody does on one that is not",
        """
        SELECT id AS order_id, status || ' with tasks ' || tasks AS found
        FROM (SELECT orders.id, orders.status, orders.created_at, {letters} AS tasks FROM orders {tasks_of_orders}) AS o
        LEFT JOIN unnest(CAST(:statuses AS text[]), CAST(:complete AS text[]), CAST(:thinned AS text[]))
             AS fitting (status, complete, thinned) USING (status)
        WHERE (tasks ~ CASE WHEN created_at < {now} - make_interval(secs => :task_retention)
                            THEN thinned ELSE complete END) IS NOT TRUE""",
    ),
    _invariant(
        "one event for each version",
        "an event was lost or told twice",
        """
        SELECT id AS order_id, format('version %s, %s events up to %s', version, coalesce(events, 0), last) AS found
        FROM orders LEFT JOIN (
          SELECT order_id, count(*) AS events, max(sequence) AS last FROM outbox_event GROUP BY order_id
        ) AS told ON order_id = id
        WHERE CASE WHEN created_at >= {now} - make_interval(secs => :event_retention)
                   THEN events = version AND last = version
                   WHEN updated_at >= {now} - make_interval(secs => :event_retention) THEN last = version
                   ELSE coalesce(last, 0) <= version END IS NOT TRUE""",
    ),
    _invariant(
        "the last event tells the status",
        "those who listen believe something else than we do",
        """
        SELECT id AS order_id, format('%s, told %s', orders.status, data ->> 'status') AS found
        FROM orders JOIN outbox_event ON order_id = id AND sequence = version
        WHERE data ->> 'status' IS DISTINCT FROM orders.status""",
    ),
    _invariant(
        "order and task know the same payment",
        "money may be taken that the order does not know of",
        """
        SELECT id AS order_id, format('order %s, task %s', details ->> 'paymentId', external_id) AS found
        FROM orders JOIN payment_task ON order_id = id
        WHERE details ->> 'paymentId' IS DISTINCT FROM external_id""",
    ),
    _invariant(
        "every task names its operation",
        "without its key a call cannot be repeated safely",
        "SELECT order_id, name || ' has no key' AS found FROM {all_tasks} WHERE payload ->> 'key' IS NULL",
    ),
    _invariant(
        "active tasks come due",
        "a task lies beyond any lease and any backoff, where nobody looks for it",
        """
        SELECT order_id, format('%s is due at %s', name, next_attempt_at) AS found FROM {all_tasks}
        WHERE {active} AND next_attempt_at > {now} + make_interval(secs => horizon)""",
    ),
    _invariant(
        "attempts end",
        "a task is tried again and again, though it was to fail",
        """
        SELECT order_id, format('%s was tried %s times of %s', name, retry_count, max_attempts) AS found
        FROM {all_tasks} WHERE {active} AND retry_count > max_attempts + 1""",
    ),
    _invariant(
        "events go out, or say why not",
        "an event lies where neither the relay nor a person looks for it",
        """
        SELECT order_id, format('event %s is %s, due at %s', sequence, status, next_attempt_at) AS found
        FROM outbox_event
        WHERE CASE status WHEN 'PENDING' THEN next_attempt_at <= {now} + make_interval(secs => :event_horizon)
                          WHEN 'PUBLISHED' THEN published_at IS NOT NULL
                          WHEN 'PARKED' THEN last_error IS NOT NULL END IS NOT TRUE""",
    ),
)


_GUARD = text("""
SELECT pg_try_advisory_xact_lock(:lock) AS alone, set_config('statement_timeout', :milliseconds, true)""")


async def inspect(
    conn: AsyncConnection, tasks: Mapping[str, TaskSettings], events: EventSettings, *, statement_timeout: float
) -> dict[str, int] | None:
    """How often each invariant is broken, in a transaction of its own; None while another replica is looking.

    Gives up with the first statement that takes longer than `statement_timeout` seconds.
    """
    limits = {"lock": LOCK, "milliseconds": str(math.ceil(statement_timeout * 1000))}
    if not (await conn.execute(_GUARD, limits)).one().alone:
        return None
    broken = Counter(violation.invariant.name for violation in await violations(conn, tasks, events))
    return {invariant.name: broken[invariant.name] for invariant in INVARIANTS}


async def violations(
    conn: AsyncConnection, tasks: Mapping[str, TaskSettings], events: EventSettings
) -> list[Violation]:
    """What does not hold, at most MOST rows of each invariant. Reads all orders, tasks and events."""
    limits = _limits(tasks, events)
    return [
        Violation(invariant, row.order_id, row.found)
        for invariant in INVARIANTS
        for row in await conn.execute(invariant.statement, limits)
    ]


def _limits(tasks: Mapping[str, TaskSettings], events: EventSettings) -> dict[str, object]:
    """What the statements take from the settings. Of an order older than that, what is done with may be gone."""
    rules = [tasks[table] for table in _TABLES]
    return {
        "tables": _TABLES,
        "horizons": [max(rule.lease, rule.backoff_cap) for rule in rules],
        "max_attempts": [rule.max_attempts for rule in rules],
        "statuses": [status.value for status in TASKS],
        "complete": [f"^({letters})$" for letters in TASKS.values()],
        "thinned": [f"^({letters})$".replace("C", "[C-]") for letters in TASKS.values()],
        "task_retention": min(rule.retention for rule in rules),
        "event_horizon": max(events.lease, events.backoff_cap),
        "event_retention": events.retention,
    }
