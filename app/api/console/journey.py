"""What the console shows of one order: its steps, and its history of events and of operators' hands."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app import audit
from app.audit import OperatorAction
from app.orders.order import OrderStatus
from app.orders.read import read_order
from app.orders.repository import OrderRecord
from app.outbox.history import PastEvent, history
from app.tasks.standing import TaskView
from app.tasks.task import TaskStatus
from app.wiring import Wiring

EVENTS_SHOWN = 200

ANSWERS = {
    "applicationId": "Application",
    "paymentId": "Payment",
    "paymentUrl": "Payment page",
    "receiptId": "Receipt",
    "fiscalNumber": "Fiscal number",
    "bookingId": "Booking",
    "tickets": "Tickets",
}
"""What the systems answer, in the order of the journey: in words, by the keys of the order's details."""


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step of the journey; `task` is None before it begins, and again when retention has deleted it."""

    table: str
    system: str
    task: TaskView | None
    most: int
    passed: bool

    @property
    def state(self) -> str:
        match self.task:
            case None:
                return "passed" if self.passed else "ahead"
            case TaskView(status=TaskStatus.FAILED):
                return "failed"
            case TaskView(open=True):
                return "open"
            case _:
                return "done"


@dataclass(frozen=True, slots=True)
class Moment:
    """Something in the order's history, `after` seconds from its acceptance."""

    at: datetime
    after: float
    what: PastEvent | OperatorAction


@dataclass(frozen=True, slots=True)
class JourneyPage:
    """`answers`: what the systems have answered, each under its name in words."""

    record: OrderRecord
    answers: list[tuple[str, Any]]
    steps: list[StepRow]
    moments: list[Moment]
    trace_id: str | None
    may_be_cancelled: bool


async def read_journey(wiring: Wiring, order_id: int) -> JourneyPage | None:
    """None when there is no such order."""
    engine = wiring.database.engine
    found = await read_order(engine, list(wiring.queues), order_id)
    if found is None:
        return None
    record, tasks = found
    async with engine.connect() as conn:
        events = await history(conn, order_id, EVENTS_SHOWN)
        actions = await audit.about(conn, [f"{table}/{task.task_id}" for table, task in tasks.items()])
    past: list[tuple[datetime, PastEvent | OperatorAction]] = [
        *((event.occurred_at, event) for event in events),
        *((action.at, action) for action in actions),
    ]
    began = record.created_at
    return JourneyPage(
        record=record,
        answers=_answers(record.order.details),
        steps=_steps(wiring, tasks),
        moments=[Moment(at, (at - began).total_seconds(), what) for at, what in sorted(past, key=lambda p: p[0])],
        trace_id=next((event.traceparent.split("-")[1] for event in events if event.traceparent), None),
        may_be_cancelled=_may_be_cancelled(record),
    )


def _answers(details: dict[str, Any]) -> list[tuple[str, Any]]:
    """Those that have no words keep their key, and come last."""
    keys = [*(key for key in ANSWERS if key in details), *(key for key in details if key not in ANSWERS)]
    return [(ANSWERS.get(key, key), details[key]) for key in keys]


def _steps(wiring: Wiring, tasks: dict[str, TaskView]) -> list[StepRow]:
    begun = [step.table in tasks for step in wiring.steps]
    return [
        StepRow(
            step.table,
            step.system,
            tasks.get(step.table),
            most=wiring.settings.tasks[step.table].max_attempts,
            passed=any(begun[place:]),
        )
        for place, step in enumerate(wiring.steps)
    ]


def _may_be_cancelled(record: OrderRecord) -> bool:
    """Whether it is worth trying; the order itself decides."""
    order = record.order
    unpaid = order.status in {OrderStatus.ACCEPTED, OrderStatus.CONFIRMATION_FAILED, OrderStatus.CONFIRMED}
    return unpaid and "paymentId" not in order.details
