"""The JSON of the API: what comes in, and what goes out."""

from dataclasses import asdict
from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from app.orders.money import Money
from app.orders.order import Item, Order
from app.orders.repository import OrderRecord
from app.resilience.events import BreakerState
from app.systems.health import Condition
from app.systems.system import SystemSnapshot
from app.tasks.queue import TaskView
from app.tasks.task import TaskStatus

_AMOUNT = r"^(0\.(0[1-9]|[1-9][0-9]?)|[1-9][0-9]{0,11}(\.[0-9]{1,2})?)$"
_PRINTABLE = r"^[^\x00-\x1f\x7f]+$"

CustomerId = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=_PRINTABLE)]
Int64 = Annotated[int, Field(ge=1, le=2**63 - 1)]


class _Wire(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True, frozen=True)


class Price(_Wire):
    """An exact amount as a decimal string, above zero."""

    amount: Annotated[str, StringConstraints(pattern=_AMOUNT)] = Field(examples=["1990.00"])
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = Field(examples=["RUB"])


class NewItem(_Wire):
    sku: Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=_PRINTABLE)] = Field(examples=["TICKET"])
    quantity: Annotated[int, Field(ge=1, le=10_000)] = Field(examples=[2])
    price: Price

    def to_domain(self) -> Item:
        return Item(self.sku, self.quantity, Money(Decimal(self.price.amount), self.price.currency))


class NewOrder(_Wire):
    """An order to be placed. All prices are in one currency."""

    customer_id: CustomerId = Field(examples=["c-42"])
    items: Annotated[list[NewItem], Field(min_length=1, max_length=100)]

    @model_validator(mode="after")
    def _one_currency(self) -> Self:
        if len(currencies := {item.price.currency for item in self.items}) > 1:
            raise ValueError(f"all prices of an order are in one currency, here are {', '.join(sorted(currencies))}")
        return self

    def to_domain(self) -> tuple[Item, ...]:
        return tuple(item.to_domain() for item in self.items)


class Queued(_Wire):
    status: Literal["queued"] = "queued"
    order_id: Int64
    task_id: Int64


class Amount(_Wire):
    amount: str
    currency: str

    @classmethod
    def of(cls, money: Money) -> Self:
        return cls(amount=f"{money.amount:f}", currency=money.currency)


class ItemView(_Wire):
    sku: str
    quantity: int
    price: Amount


class StepView(_Wire):
    """A step of the journey. `error` is the kind of the last failure; `next_attempt_at` is there while it is open."""

    task: str
    system: str
    task_id: int
    status: str
    attempts: int
    error: str | None
    next_attempt_at: datetime | None
    updated_at: datetime


class OrderView(_Wire):
    """An order, how far it has come, and what the systems answered. Steps completed long ago are no longer listed."""

    order_id: int
    customer_id: str
    status: str
    final: bool
    reason: str | None
    total: Amount
    items: list[ItemView]
    payment_url: str | None
    fiscal_number: str | None
    tickets: list[str]
    steps: list[StepView]
    links: dict[str, str]
    created_at: datetime
    updated_at: datetime


class OrderRow(_Wire):
    """An order in a list; the order itself has its items and steps."""

    order_id: int
    customer_id: str
    status: str
    final: bool
    total: Amount
    links: dict[str, str]
    created_at: datetime
    updated_at: datetime


class OrderPage(_Wire):
    orders: list[OrderRow]


def order_row(record: OrderRecord) -> OrderRow:
    order = record.order
    return OrderRow(
        order_id=order.id,
        customer_id=order.customer_id,
        status=order.status,
        final=order.status.final,
        total=Amount.of(order.total),
        links={"self": f"/orders/{order.id}"},
        created_at=record.created_at,
        updated_at=record.updated_at,
    )


def order_view(record: OrderRecord, steps: list[StepView]) -> OrderView:
    order: Order = record.order
    return OrderView(
        order_id=order.id,
        customer_id=order.customer_id,
        status=order.status,
        final=order.status.final,
        reason=order.reason,
        total=Amount.of(order.total),
        items=[ItemView(sku=i.sku, quantity=i.quantity, price=Amount.of(i.price)) for i in order.items],
        payment_url=order.details.get("paymentUrl"),
        fiscal_number=order.details.get("fiscalNumber"),
        tickets=order.details.get("tickets", []),
        steps=steps,
        links={"self": f"/orders/{order.id}"},
        created_at=record.created_at,
        updated_at=record.updated_at,
    )


def step_view(view: TaskView, system: str) -> StepView:
    return StepView(
        task=view.name,
        system=system,
        task_id=view.task_id,
        status=view.status,
        attempts=view.attempts,
        error=view.last_error.split(":", 1)[0] if view.last_error else None,
        next_attempt_at=view.next_attempt_at if view.open else None,
        updated_at=view.updated_at,
    )


class BreakerView(_Wire):
    """`window`: samples it holds at most; the rates, while it is open, are those that opened it."""

    state: BreakerState
    isolated: bool
    window: int
    samples: int
    failure_rate: float
    slow_rate: float
    permits_in_use: int
    seconds_to_half_open: float | None


class BulkheadView(_Wire):
    capacity: int
    in_use: int
    waiting: int


class PoolView(_Wire):
    size: int
    in_use: int


class ConditionView(_Wire):
    """What the last health probe found, `age` seconds ago."""

    up: bool
    reason: str | None
    age: float


class SystemView(_Wire):
    """An external system as one replica sees it: breaker, bulkhead and pool are each process's own."""

    system: str
    replica: str
    breaker: BreakerView
    bulkhead: BulkheadView
    pool: PoolView
    health: ConditionView | None


class SystemsView(_Wire):
    systems: dict[str, SystemView]


class TaskRow(_Wire):
    """A task as operators see it; `due_in` in seconds, 0 when due or under way."""

    task: str
    task_id: int
    order_id: int
    status: TaskStatus
    attempts: int
    last_error: str | None
    next_attempt_at: datetime
    due_in: float
    created_at: datetime
    updated_at: datetime


class TaskPage(_Wire):
    tasks: list[TaskRow]


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


def task_row(order_id: int, task: TaskView) -> TaskRow:
    values = asdict(task)
    return TaskRow(task=values.pop("name"), order_id=order_id, **values)
