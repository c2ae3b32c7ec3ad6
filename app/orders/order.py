"""The order: what was bought, how far it has come, and which moves are allowed from there."""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import reduce
from operator import add
from typing import Any, Self

from app.orders.money import Money


class OrderStatus(StrEnum):
    ACCEPTED = "ACCEPTED"
    CONFIRMED = "CONFIRMED"
    PAID = "PAID"
    RECEIPT_ISSUED = "RECEIPT_ISSUED"
    BOOKED = "BOOKED"
    COMPLETED = "COMPLETED"
    REJECTED = "REJECTED"
    PAYMENT_DECLINED = "PAYMENT_DECLINED"
    CANCELLED = "CANCELLED"
    CONFIRMATION_FAILED = "CONFIRMATION_FAILED"
    PAYMENT_FAILED = "PAYMENT_FAILED"
    RECEIPT_FAILED = "RECEIPT_FAILED"
    BOOKING_FAILED = "BOOKING_FAILED"
    RECORD_FAILED = "RECORD_FAILED"

    @property
    def final(self) -> bool:
        """True when the service itself moves the order no further; a failed step waits for an operator."""
        return self not in _WAY


S = OrderStatus
_WAY = (S.ACCEPTED, S.CONFIRMED, S.PAID, S.RECEIPT_ISSUED, S.BOOKED)


@dataclass(frozen=True, slots=True)
class Move:
    """One line of the state machine: the move's name, where it may start, where it ends, the event it records."""

    name: str
    starts: frozenset[OrderStatus]
    ends: OrderStatus
    event: str


def _move(name: str, starts: OrderStatus | tuple[OrderStatus, ...], ends: OrderStatus, event: str) -> Move:
    return Move(name, frozenset((starts,) if isinstance(starts, OrderStatus) else starts), ends, event)


MOVES: dict[str, Move] = {
    move.name: move
    for move in (
        _move("confirm", S.ACCEPTED, S.CONFIRMED, "order.confirmed"),
        _move("reject", S.ACCEPTED, S.REJECTED, "order.rejected"),
        _move("fail_confirmation", S.ACCEPTED, S.CONFIRMATION_FAILED, "order.step_failed"),
        _move("retry_confirmation", S.CONFIRMATION_FAILED, S.ACCEPTED, "order.step_retried"),
        _move("register_payment", S.CONFIRMED, S.CONFIRMED, "order.payment_registered"),
        _move("pay", S.CONFIRMED, S.PAID, "order.paid"),
        _move("decline_payment", S.CONFIRMED, S.PAYMENT_DECLINED, "order.payment_declined"),
        _move("fail_payment", S.CONFIRMED, S.PAYMENT_FAILED, "order.step_failed"),
        _move("retry_payment", S.PAYMENT_FAILED, S.CONFIRMED, "order.step_retried"),
        _move("issue_receipt", S.PAID, S.RECEIPT_ISSUED, "order.receipt_issued"),
        _move("fail_receipt", S.PAID, S.RECEIPT_FAILED, "order.step_failed"),
        _move("retry_receipt", S.RECEIPT_FAILED, S.PAID, "order.step_retried"),
        _move("book", S.RECEIPT_ISSUED, S.BOOKED, "order.booked"),
        _move("fail_booking", S.RECEIPT_ISSUED, S.BOOKING_FAILED, "order.step_failed"),
        _move("retry_booking", S.BOOKING_FAILED, S.RECEIPT_ISSUED, "order.step_retried"),
        _move("complete", S.BOOKED, S.COMPLETED, "order.completed"),
        _move("fail_record", S.BOOKED, S.RECORD_FAILED, "order.step_failed"),
        _move("retry_record", S.RECORD_FAILED, S.BOOKED, "order.step_retried"),
        _move("cancel", (S.ACCEPTED, S.CONFIRMED), S.CANCELLED, "order.cancelled"),
    )
}


NOT_SAVED = 0
"""The id of an order that has none yet."""


class WrongMove(Exception):
    """The order is in a state from which this move is not allowed, `why` tells more."""

    def __init__(self, order_id: int, status: OrderStatus, move: str, why: str = "") -> None:
        wanted = "be cancelled" if move == "cancel" else f"take the move {move}"
        super().__init__(f"order {order_id} is {status} and cannot {wanted}" + (why and f", because {why}"))
        self.order_id, self.status, self.move = order_id, status, move


@dataclass(frozen=True, slots=True)
class Item:
    sku: str
    quantity: int
    price: Money


@dataclass(frozen=True, slots=True)
class Event:
    """What happened to an order; `sequence` counts an order's events from 1 without gaps."""

    order_id: int
    sequence: int
    type: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Order:
    """An order. Immutable: a move returns the moved order and the event that tells of it.

    `version` counts the moves and numbers the events; `details` keeps what the systems answered, under the keys
    `applicationId`, `paymentId`, `paymentUrl`, `receiptId`, `fiscalNumber`, `bookingId`, `tickets`.
    """

    id: int
    customer_id: str
    items: tuple[Item, ...]
    status: OrderStatus = OrderStatus.ACCEPTED
    version: int = 1
    reason: str | None = None
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def total(self) -> Money:
        return reduce(add, (item.price * item.quantity for item in self.items))

    def accepted(self) -> Event:
        """The event that opens an order's history."""
        return Event(self.id, self.version, "order.accepted", {"status": self.status, "previous": None})

    def move(self, name: str, *, reason: str | None = None, **details: Any) -> tuple[Self, Event]:
        """Take the move called `name` in MOVES; raises WrongMove when the order's status does not allow it."""
        move = MOVES[name]
        if self.status not in move.starts:
            raise WrongMove(self.id, self.status, name)
        if name == "cancel" and "paymentId" in self.details:
            raise WrongMove(self.id, self.status, name, "its payment is registered")
        moved = replace(
            self, status=move.ends, version=self.version + 1, reason=reason, details={**self.details, **details}
        )
        told: dict[str, Any] = {"status": moved.status, "previous": self.status, **details} | (
            {"reason": reason} if reason else {}
        )
        return moved, Event(self.id, moved.version, move.event, told)
