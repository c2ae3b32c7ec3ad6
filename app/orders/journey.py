"""An order's journey: five steps from top to bottom, each asking one external system, and what its answers mean."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import structlog
from opentelemetry.trace import SpanKind
from sqlalchemy import Connection
from structlog.contextvars import bind_contextvars

from app.observability.traces import continued
from app.orders import repository
from app.orders.moves import StepQueues, save_moves
from app.orders.order import Order
from app.orders.ports import (
    BookingPort,
    InsurancePort,
    InvalidAnswer,
    OrderBookPort,
    PaymentPort,
    ReceiptPort,
    SystemRefused,
    SystemUnavailable,
)
from app.orders.repository import Moved
from app.orders.snapshot import load_payload
from app.tasks.settlement import Settlement
from app.tasks.task import Done, GivenUp, NotMade, NotYet, Outcome, Sent, Task, TaskStatus

log = structlog.get_logger()

PASSING_REFUSALS = {TaskStatus.PENDING: "http_409", TaskStatus.IN_PROGRESS: "http_404"}
"""Refusals that may pass: our own cut attempt is still being worked on; what was just taken in is not found yet."""

PENDING = NotYet("pending: the system has not decided yet")


def why(error: SystemUnavailable | SystemRefused | InvalidAnswer) -> str:
    """A reason for people; its first word, up to the colon, is for machines."""
    return f"{error.kind}: {error}"


class Call(NamedTuple):
    """What a step may use for one call: its operation's Idempotency-Key, and how many seconds are left."""

    key: str
    budget: float


@dataclass(frozen=True, slots=True)
class Take:
    """The effect of a settled task: the move that its order takes."""

    move: str
    reason: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


class Step(Protocol):
    """One step: the event it begins with, its table and system, its moves when it fails and when it is retried."""

    begins: str
    table: str
    system: str
    fails: str
    retries: str

    async def send(self, order: Order, call: Call) -> Outcome:
        """Ask the system to begin."""

    async def poll(self, order: Order, external_id: str, call: Call) -> Outcome:
        """Ask how far the system has come."""


class Confirm:
    begins, table, system = "order.accepted", "order_confirmation_task", "insurance"
    fails, retries = "fail_confirmation", "retry_confirmation"

    def __init__(self, insurance: InsurancePort) -> None:
        self._insurance = insurance

    async def send(self, order: Order, call: Call) -> Outcome:
        return Sent(await self._insurance.apply(order, key=call.key, budget=call.budget))

    async def poll(self, order: Order, external_id: str, call: Call) -> Outcome:
        answer = await self._insurance.confirmation(order, budget=call.budget)
        match answer.status:
            case "CONFIRMED":
                return Done(Take("confirm", details={"applicationId": external_id}))
            case "REJECTED":
                return Done(Take("reject", answer.reason or "rejected by the insurance"))
            case "PENDING":
                return PENDING


class Pay:
    begins, table, system = "order.confirmed", "payment_task", "sber"
    fails, retries = "fail_payment", "retry_payment"

    def __init__(self, sber: PaymentPort) -> None:
        self._sber = sber

    async def send(self, order: Order, call: Call) -> Outcome:
        payment = await self._sber.register(order, key=call.key, budget=call.budget)
        details = {"paymentId": payment.payment_id, "paymentUrl": payment.url}
        return Sent(payment.payment_id, Take("register_payment", details=details))

    async def poll(self, order: Order, external_id: str, call: Call) -> Outcome:
        payment = await self._sber.find(external_id, budget=call.budget)
        match payment.status:
            case "PAID":
                return Done(Take("pay"))
            case "DECLINED":
                return Done(Take("decline_payment", payment.reason or "declined by the bank"))
            case "REGISTERED":
                return PENDING


class IssueReceipt:
    begins, table, system = "order.paid", "receipt_creation_task", "receipt"
    fails, retries = "fail_receipt", "retry_receipt"

    def __init__(self, receipts: ReceiptPort) -> None:
        self._receipts = receipts

    async def send(self, order: Order, call: Call) -> Outcome:
        return Sent(await self._receipts.create(order, order.details["paymentId"], key=call.key, budget=call.budget))

    async def poll(self, order: Order, external_id: str, call: Call) -> Outcome:
        receipt = await self._receipts.find(external_id, budget=call.budget)
        match receipt.status:
            case "ISSUED":
                details = {"receiptId": external_id, "fiscalNumber": receipt.fiscal_number}
                return Done(Take("issue_receipt", details=details))
            case "FAILED":
                return _ended(self, f"ended: receipt {external_id} failed at the system")
            case "QUEUED":
                return PENDING


class Book:
    begins, table, system = "order.receipt_issued", "booking_task", "odnakassa"
    fails, retries = "fail_booking", "retry_booking"

    def __init__(self, odnakassa: BookingPort) -> None:
        self._odnakassa = odnakassa

    async def send(self, order: Order, call: Call) -> Outcome:
        return Sent(await self._odnakassa.book(order, key=call.key, budget=call.budget))

    async def poll(self, order: Order, external_id: str, call: Call) -> Outcome:
        booking = await self._odnakassa.find(external_id, budget=call.budget)
        match booking.status:
            case "BOOKED":
                return Done(Take("book", details={"bookingId": external_id, "tickets": list(booking.tickets)}))
            case "FAILED":
                return _ended(self, f"ended: booking {external_id} failed at the system")
            case "PENDING":
                return PENDING


class Record:
    begins, table, system = "order.booked", "orderbook_task", "orderbook"
    fails, retries = "fail_record", "retry_record"

    def __init__(self, orderbook: OrderBookPort) -> None:
        self._orderbook = orderbook

    async def send(self, order: Order, call: Call) -> Outcome:
        await self._orderbook.record(order, budget=call.budget)
        return Done(Take("complete"))

    async def poll(self, order: Order, external_id: str, call: Call) -> Outcome:
        return await self.send(order, call)


STEPS = (Confirm, Pay, IssueReceipt, Book, Record)
"""The steps in the order in which an order takes them."""


def journey(systems: Mapping[str, Any]) -> tuple[Step, ...]:
    """The steps, each with the adapter of its system; `systems` holds the adapters by system name."""
    return tuple(step(systems[step.system]) for step in STEPS)


def _ended(step: Step, reason: str) -> GivenUp:
    return GivenUp(reason, Take(step.fails, reason), ended=True)


class StepWork:
    """A step as the poller sees it: attempts, and the moves that settled tasks bring."""

    def __init__(self, step: Step, steps: StepQueues, *, jitter: float) -> None:
        self._step, self._steps, self._jitter = step, steps, jitter

    async def attempt(self, task: Task, budget: float) -> Outcome:
        """Make the step's next call and say what its answer, or its failure, means for the task.

        Log lines of the asyncio task that it runs in are about this attempt from now on.
        """
        table, system = self._step.table, self._step.system
        ids: dict[str, int] = {"task_id": task.task_id, "order_id": task.order_id, "attempt": task.attempt}
        bind_contextvars(table=table, system=system, **ids)
        with continued(f"{table} attempt", task.traceparent, ids, kind=SpanKind.CONSUMER) as span:
            outcome = await self._attempt(task, budget)
            span.set_attribute("outcome", type(outcome).__name__)
            return outcome

    async def _attempt(self, task: Task, budget: float) -> Outcome:
        try:
            order = load_payload(task.order_id, task.payload)
        except ValueError as error:
            return self.exhausted(task, f"payload: it cannot be read: {error}")
        try:
            return await self._call(order, task, Call(task.key, budget))
        except (SystemUnavailable, SystemRefused, InvalidAnswer) as error:
            return self._failed(task, error)

    def exhausted(self, task: Task, reason: str) -> GivenUp:
        return GivenUp(reason, Take(self._step.fails, reason))

    def apply(self, conn: Connection, settlements: list[Settlement]) -> None:
        """Move the orders of settled tasks; raises WrongMove when an order is not where its task thinks it is."""
        orders = repository.lock(conn, [s.task.order_id for s in settlements])
        moves = []
        for settlement in settlements:
            task, take = settlement.task, settlement.effect
            assert isinstance(take, Take)
            order, event = orders[task.order_id].move(take.move, reason=take.reason, **take.details)
            moves.append(Moved(order, event, task.traceparent))
        save_moves(conn, moves, self._steps)

    async def _call(self, order: Order, task: Task, call: Call) -> Outcome:
        if task.status is TaskStatus.IN_PROGRESS and task.external_id is not None:
            return await self._step.poll(order, task.external_id, call)
        return await self._step.send(order, call)

    def _failed(self, task: Task, error: SystemUnavailable | SystemRefused | InvalidAnswer) -> Outcome:
        match error:
            case SystemRefused() if error.kind != PASSING_REFUSALS[task.status]:
                return self.exhausted(task, why(error))
            case SystemUnavailable() if error.held_back:
                return NotMade(why(error), self._deferral(error.retry_after))
            case _:
                return NotYet(why(error), after=error.retry_after)

    def _deferral(self, reopens: float | None) -> float:
        """Until the breaker lets calls through again, spread so that the waiting rows do not all come at once."""
        wait = 1.0 if reopens is None else max(reopens, 0.1)
        return wait * (1 + self._jitter * random.random())  # noqa: S311 - spreads load, guards no secret
