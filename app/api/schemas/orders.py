"""Orders: what comes in, and what is shown of them."""

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from app.api.schemas.wire import (
    PRINTABLE,
    WHOLE,
    Address,
    Count,
    CustomerId,
    Int64,
    Links,
    Name,
    Text,
    View,
    Wire,
    told,
)
from app.orders.money import Money
from app.orders.order import Item, Order, OrderStatus
from app.orders.repository import OrderRecord
from app.tasks.standing import TaskView
from app.tasks.task import TaskStatus

_AMOUNT = r"^(0\.(0[1-9]|[1-9][0-9]?)|[1-9][0-9]{0,11}(\.[0-9]{1,2})?)$"
_SUM = r"^(0|[1-9][0-9]{0,17})(\.[0-9]{1,2})?$"
_CURRENCY = r"^[A-Z]{3}$"

Sku = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=PRINTABLE)]
Reference = Annotated[str, told(minLength=1, maxLength=200)]
"""What a system calls something of its own."""

Given = Annotated[str, told(minLength=1, maxLength=64)]
"""What a client gave with its order, perhaps before today's rule for it."""

Tickets = Annotated[list[Reference], told(maxItems=1000)]


class Price(Wire):
    """An exact amount as a decimal string, above zero."""

    amount: Annotated[str, StringConstraints(max_length=15, pattern=_AMOUNT)] = Field(examples=["1990.00"])
    currency: Annotated[str, StringConstraints(min_length=3, max_length=3, pattern=_CURRENCY)] = Field(examples=["RUB"])


class NewItem(Wire):
    sku: Sku = Field(examples=["TICKET"])
    quantity: Annotated[int, Field(ge=1, le=10_000), WHOLE] = Field(examples=[2])
    price: Price

    def to_domain(self) -> Item:
        return Item(self.sku, self.quantity, Money(Decimal(self.price.amount), self.price.currency))


class NewOrder(Wire):
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


class Queued(View):
    status: Literal["queued"] = "queued"
    order_id: Int64
    task_id: Int64


class Amount(View):
    """An exact amount as a decimal string."""

    amount: Annotated[str, told(minLength=1, maxLength=21, pattern=_SUM)]
    currency: Annotated[str, told(minLength=3, maxLength=3, pattern=_CURRENCY)]

    @classmethod
    def of(cls, money: Money) -> Self:
        return cls(amount=f"{money.amount:f}", currency=money.currency)


class ItemView(View):
    sku: Given
    quantity: Count
    price: Amount


class StepView(View):
    """A step of the journey. `error` is the kind of the last failure; `next_attempt_at` is there while it is open."""

    task: Name
    system: Name
    task_id: Int64
    status: TaskStatus
    attempts: Count
    error: Text | None
    next_attempt_at: datetime | None
    updated_at: datetime


class OrderView(View):
    """An order, how far it has come, and what the systems answered. Steps completed long ago are no longer listed."""

    order_id: Int64
    customer_id: Given
    status: OrderStatus
    final: bool
    reason: Text | None
    total: Amount
    items: Annotated[list[ItemView], told(minItems=1, maxItems=100)]
    payment_url: Address | None
    fiscal_number: Reference | None
    tickets: Tickets
    steps: Annotated[list[StepView], told(maxItems=100)]
    links: Links
    created_at: datetime
    updated_at: datetime


class OrderRow(View):
    """An order in a list; the order itself has its items and steps."""

    order_id: Int64
    customer_id: Given
    status: OrderStatus
    final: bool
    total: Amount
    links: Links
    created_at: datetime
    updated_at: datetime


class OrderPage(View):
    orders: Annotated[list[OrderRow], told(maxItems=1000)]


def order_row(record: OrderRecord, root: str = "") -> OrderRow:
    """`root`: what stands before `/orders` in addresses."""
    order = record.order
    return OrderRow(
        order_id=order.id,
        customer_id=order.customer_id,
        status=order.status,
        final=order.status.final,
        total=Amount.of(order.total),
        links={"self": f"{root}/orders/{order.id}"},
        created_at=record.created_at,
        updated_at=record.updated_at,
    )


def order_view(record: OrderRecord, steps: list[StepView], root: str = "") -> OrderView:
    """`root`: what stands before `/orders` in addresses."""
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
        links={"self": f"{root}/orders/{order.id}"},
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
