"""An example of each body, made as the service makes them: under the name of its schema, or a problem's slug."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

from fastapi.sse import format_sse_event
from pydantic import BaseModel

from app.api import webhooks
from app.api.health import Alive, Readiness, SystemHealth
from app.api.kinds import Kind
from app.api.problems import FieldError, Problem
from app.api.schemas import (
    NewItem,
    NewOrder,
    OrderPage,
    Price,
    Queued,
    StepView,
    SystemsView,
    TaskPage,
    TaskRow,
    order_row,
    order_view,
    system_view,
)
from app.api.schemas.actions import ActionPage, ActionRow, Reason
from app.orders.order import Order
from app.orders.repository import OrderRecord
from app.resilience import PolicySnapshot
from app.systems.health import Condition
from app.systems.system import SystemSnapshot
from app.tasks.task import TaskStatus

PLACED_AT = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)
MOVED_AT = PLACED_AT + timedelta(seconds=5)
REQUEST_ID = "8e03978e-40d5-43e8-bc93-6894a57f9324"

NEW_ORDER = NewOrder(
    customer_id="c-42", items=[NewItem(sku="TICKET", quantity=2, price=Price(amount="1990.00", currency="RUB"))]
)
ACCEPTED = Order(42, NEW_ORDER.customer_id, NEW_ORDER.to_domain())
ORDER = OrderRecord(ACCEPTED.move("confirm", applicationId="app-7")[0], PLACED_AT, MOVED_AT)
STEP = StepView(
    task="payment_task",
    system="sber",
    task_id=17,
    status=TaskStatus.PENDING,
    attempts=1,
    error="timeout",
    next_attempt_at=MOVED_AT + timedelta(seconds=2),
    updated_at=MOVED_AT,
)
TASK = TaskRow(
    task=STEP.task,
    task_id=STEP.task_id,
    order_id=ORDER.order.id,
    status=STEP.status,
    attempts=STEP.attempts,
    last_error="timeout: register: no answer within 5 s",
    next_attempt_at=MOVED_AT + timedelta(seconds=2),
    due_in=1.4,
    created_at=PLACED_AT,
    updated_at=MOVED_AT,
)
POLICY = PolicySnapshot(
    system="sber",
    state="closed",
    isolated=False,
    window=50,
    samples=12,
    failure_rate=0.083,
    slow_rate=0.0,
    permits_in_use=0,
    in_use=1,
    waiting=0,
    capacity=4,
    seconds_to_half_open=None,
)
SYSTEM = system_view(
    SystemSnapshot(POLICY, 1, Condition(up=True, reason=None, checked_at=0.0, age=12.5)),
    connections=5,
    replica="orders-7f9c:1",
    called=True,
)
HEALTH = SystemHealth(up=True, reason=None, age=12.5, breaker="closed", required=False)

ACTION = ActionRow(
    id=1,
    at=MOVED_AT,
    caller="alice",
    action="isolate",
    target="sber",
    reason="the bank has announced an outage",
    replica="orders-7f9c:1",
)

BODIES: tuple[BaseModel, ...] = (
    NEW_ORDER,
    Queued(order_id=42, task_id=17),
    order_view(ORDER, [STEP]),
    OrderPage(orders=[order_row(ORDER)]),
    TASK,
    TaskPage(tasks=[TASK]),
    Reason(reason="the bank has announced an outage"),
    ActionPage(actions=[ACTION]),
    SYSTEM,
    SystemsView(systems={"sber": SYSTEM}),
    Alive(),
    Readiness(ready=True, problems=[], systems={"sber": HEALTH}),
)


EVENT = webhooks.EXAMPLES["OrderConfirmed"]["value"]


def _problem(kind: Kind) -> dict[str, Any]:
    wrong = [FieldError(pointer="/items/0/quantity", detail="Input should be less than or equal to 10000")]
    problem = Problem(
        type=f"/problems/{kind.slug}",
        title=kind.title,
        status=kind.status,
        detail=kind.meaning,
        request_id=REQUEST_ID,
        errors=wrong if kind is Kind.INVALID_REQUEST else None,
    )
    return problem.model_dump(mode="json", by_alias=True, exclude_none=True)


EXAMPLES: dict[str, dict[str, Any]] = {
    **{type(body).__name__: {"value": body.model_dump(mode="json", by_alias=True)} for body in BODIES},
    **{kind.slug: {"summary": kind.title, "value": _problem(kind)} for kind in Kind},
    **webhooks.EXAMPLES,
    "event-stream": {"value": format_sse_event(data_str=json.dumps(EVENT), event=EVENT["type"], id="2").decode()},
}
"""As OpenAPI has them under `components`."""
