"""The order's state machine, walked completely."""

from decimal import Decimal
from itertools import product

import pytest

from app.orders.money import Money
from app.orders.order import MOVES, Item, Order, OrderStatus, WrongMove

ROUBLES = Money(Decimal("1990.00"), "RUB")

ALLOWED = {
    ("ACCEPTED", "confirm"): "CONFIRMED",
    ("ACCEPTED", "reject"): "REJECTED",
    ("ACCEPTED", "fail_confirmation"): "CONFIRMATION_FAILED",
    ("ACCEPTED", "cancel"): "CANCELLED",
    ("CONFIRMATION_FAILED", "retry_confirmation"): "ACCEPTED",
    ("CONFIRMED", "register_payment"): "CONFIRMED",
    ("CONFIRMED", "pay"): "PAID",
    ("CONFIRMED", "decline_payment"): "PAYMENT_DECLINED",
    ("CONFIRMED", "fail_payment"): "PAYMENT_FAILED",
    ("CONFIRMED", "cancel"): "CANCELLED",
    ("PAYMENT_FAILED", "retry_payment"): "CONFIRMED",
    ("PAID", "issue_receipt"): "RECEIPT_ISSUED",
    ("PAID", "fail_receipt"): "RECEIPT_FAILED",
    ("RECEIPT_FAILED", "retry_receipt"): "PAID",
    ("RECEIPT_ISSUED", "book"): "BOOKED",
    ("RECEIPT_ISSUED", "fail_booking"): "BOOKING_FAILED",
    ("BOOKING_FAILED", "retry_booking"): "RECEIPT_ISSUED",
    ("BOOKED", "complete"): "COMPLETED",
    ("BOOKED", "fail_record"): "RECORD_FAILED",
    ("RECORD_FAILED", "retry_record"): "BOOKED",
}


def order(status: str = "ACCEPTED", **details: str) -> Order:
    return Order(7, "c-42", (Item("TICKET", 2, ROUBLES),), OrderStatus(status), version=3, details=dict(details))


@pytest.mark.parametrize(("status", "move"), list(product(OrderStatus, MOVES)))
def test_every_move_from_every_status(status: OrderStatus, move: str) -> None:
    """A move either ends where the table says and tells of it once, or raises and changes nothing."""
    end = ALLOWED.get((status, move))
    if end is None:
        with pytest.raises(WrongMove, match=f"order 7 is {status}"):
            order(status).move(move)
        return
    moved, event = order(status).move(move, reason="because", paymentId="p-1")
    assert (moved.status, moved.version, moved.reason, moved.details) == (end, 4, "because", {"paymentId": "p-1"})
    assert (event.order_id, event.sequence, event.data["status"], event.data["previous"]) == (7, 4, end, status)


def test_every_status_is_reached() -> None:
    """No status is left that nothing leads to."""
    assert {move.ends for move in MOVES.values()} | {OrderStatus.ACCEPTED} == set(OrderStatus)


def test_a_registered_payment_forbids_cancelling() -> None:
    """Once sber knows of the payment, the order cannot be cancelled any more."""
    with pytest.raises(WrongMove):
        order("CONFIRMED", paymentId="p-1").move("cancel")


def test_the_total_is_exact() -> None:
    """A total is computed in decimals, to the last kopeck."""
    items = (Item("A", 3, Money(Decimal("0.10"), "RUB")), Item("B", 1, Money(Decimal("999999999999.99"), "RUB")))
    assert Order(1, "c", items).total == Money(Decimal("1000000000000.29"), "RUB")


def test_currencies_do_not_mix() -> None:
    """Adding two currencies is an error, never a number."""
    with pytest.raises(ValueError, match="cannot add EUR to RUB"):
        ROUBLES + Money(Decimal(1), "EUR")
