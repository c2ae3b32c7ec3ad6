"""What the journey asks of the outside: one small port for each external system, and the three ways it can fail."""

from dataclasses import dataclass
from typing import Literal, Protocol

from app.orders.order import Order
from app.resilience.verdict import Broken, Refused, Unavailable


class SystemUnavailable(Unavailable):
    """The system could not answer, or was not asked at all: try later."""

    @property
    def held_back(self) -> bool:
        """Whether it was our own protection that made no call: then it costs no attempt."""
        return self.kind in {"circuit_open", "bulkhead_full", "closed"}


class SystemRefused(Refused):
    """The system understood and said no: do not repeat."""


class InvalidAnswer(Broken):
    """The system broke its contract: the answer cannot be used, and its effect is unknown."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    status: Literal["PENDING", "CONFIRMED", "REJECTED"]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Registration:
    """A payment that sber knows of; `url` is where the customer pays."""

    payment_id: str
    url: str


@dataclass(frozen=True, slots=True)
class Payment:
    status: Literal["REGISTERED", "PAID", "DECLINED"]
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Receipt:
    """A fiscal receipt; `fiscal_number` is there once it is ISSUED."""

    status: Literal["QUEUED", "ISSUED", "FAILED"]
    fiscal_number: str | None = None


@dataclass(frozen=True, slots=True)
class Booking:
    """A booking; `tickets` is filled once it is BOOKED."""

    status: Literal["PENDING", "BOOKED", "FAILED"]
    tickets: tuple[str, ...] = ()


class InsurancePort(Protocol):
    async def apply(self, order: Order, *, key: str, budget: float) -> str:
        """Apply for the order's confirmation; returns the application's id. `key` makes it repeatable."""

    async def confirmation(self, order: Order, *, budget: float) -> Confirmation: ...


class PaymentPort(Protocol):
    async def register(self, order: Order, *, key: str, budget: float) -> Registration: ...

    async def find(self, payment_id: str, *, budget: float) -> Payment: ...


class ReceiptPort(Protocol):
    async def create(self, order: Order, payment_id: str, *, key: str, budget: float) -> str:
        """Ask for a fiscal receipt; returns its id."""

    async def find(self, receipt_id: str, *, budget: float) -> Receipt: ...


class BookingPort(Protocol):
    async def book(self, order: Order, *, key: str, budget: float) -> str:
        """Ask for the order's tickets; returns the booking's id."""

    async def find(self, booking_id: str, *, budget: float) -> Booking: ...


class OrderBookPort(Protocol):
    async def record(self, order: Order, *, budget: float) -> None:
        """Write the whole order into the order book; repeating it changes nothing."""
