"""The JSON of the API: what comes in, and what goes out."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from pydantic.alias_generators import to_camel

from app.orders.money import Money
from app.orders.order import Item, Order
from app.orders.repository import OrderRecord
from app.tasks.queue import TaskView

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
    """An order, how far it has come, and what the systems answered."""

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
