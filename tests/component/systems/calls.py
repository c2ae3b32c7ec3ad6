"""Every call of every adapter: how it is made, what goes over the wire, and what an answer becomes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from app.orders.order import OrderStatus
from app.orders.ports import Booking, Confirmation, Payment, Receipt, Registration
from app.systems.insurance.adapter import InsuranceAdapter
from app.systems.odnakassa.adapter import OdnakassaAdapter
from app.systems.orderbook.adapter import OrderbookAdapter
from app.systems.receipt.adapter import ReceiptAdapter
from app.systems.sber.adapter import SberAdapter
from app.systems.system import open_system
from tests.component.systems.hostile import Received, say, serve
from tests.component.systems.orders import ORDER
from tests.component.systems.sections import section

ITEMS = [
    {"sku": "seat-1", "quantity": 2, "price": {"amount": "995.50", "currency": "RUB"}},
    {"sku": "seat-2", "quantity": 1, "price": {"amount": "0.01", "currency": "RUB"}},
]


DETAILS = {
    "applicationId": "a-1",
    "paymentId": "p-1",
    "paymentUrl": "https://sber.example/pay/p-1",
    "receiptId": "r-1",
    "fiscalNumber": "f-1",
    "bookingId": "b-1",
    "tickets": ["t-1", "t-2"],
}


BOOKED = replace(ORDER, status=OrderStatus.BOOKED, details=DETAILS)


@dataclass(frozen=True)
class Asked:
    """One public method of an adapter: how it is called, what goes over the wire, and what an answer becomes."""

    system: str
    adapter: Callable[[Any], Any]
    call: Callable[[Any], Awaitable[Any]]
    line: str
    sent: dict[str, Any] | None
    answer: dict[str, Any] | None
    result: Any
    key: str | None = None

    def __str__(self) -> str:
        return f"{self.system} {self.line}"


CALLS = [
    Asked(
        "insurance",
        InsuranceAdapter,
        lambda adapter: adapter.apply(ORDER, key="k-1", budget=20),
        "POST /applications",
        {"orderId": 17, "customerId": "c-42", "items": ITEMS},
        {"applicationId": "a-1"},
        "a-1",
        "k-1",
    ),
    Asked(
        "insurance",
        InsuranceAdapter,
        lambda adapter: adapter.confirmation(ORDER, budget=20),
        "GET /orders/17/status",
        None,
        {"status": "REJECTED", "applicationId": "a-1", "reason": "no"},
        Confirmation("REJECTED", "no"),
    ),
    Asked(
        "sber",
        SberAdapter,
        lambda adapter: adapter.register(ORDER, key="k-1", budget=20),
        "POST /payments",
        {"orderId": 17, "amount": {"amount": "1991.01", "currency": "RUB"}},
        {"id": "p-1", "status": "REGISTERED", "paymentUrl": "https://sber.example/pay/p-1"},
        Registration("p-1", "https://sber.example/pay/p-1"),
        "k-1",
    ),
    Asked(
        "sber",
        SberAdapter,
        lambda adapter: adapter.find("p-1", budget=20),
        "GET /payments/p-1",
        None,
        {"id": "p-1", "status": "DECLINED", "reason": "no money"},
        Payment("DECLINED", "no money"),
    ),
    Asked(
        "receipt",
        ReceiptAdapter,
        lambda adapter: adapter.create(ORDER, "p-1", key="k-1", budget=20),
        "POST /receipts",
        {"orderId": 17, "paymentId": "p-1", "items": ITEMS},
        {"id": "r-1"},
        "r-1",
        "k-1",
    ),
    Asked(
        "receipt",
        ReceiptAdapter,
        lambda adapter: adapter.find("r-1", budget=20),
        "GET /receipts/r-1",
        None,
        {"id": "r-1", "status": "ISSUED", "fiscalNumber": "f-1"},
        Receipt("ISSUED", "f-1"),
    ),
    Asked(
        "odnakassa",
        OdnakassaAdapter,
        lambda adapter: adapter.book(ORDER, key="k-1", budget=20),
        "POST /bookings",
        {"orderId": 17, "items": ITEMS},
        {"id": "b-1"},
        "b-1",
        "k-1",
    ),
    Asked(
        "odnakassa",
        OdnakassaAdapter,
        lambda adapter: adapter.find("b-1", budget=20),
        "GET /bookings/b-1",
        None,
        {"id": "b-1", "status": "BOOKED", "tickets": ["t-1", "t-2"]},
        Booking("BOOKED", ("t-1", "t-2")),
    ),
    Asked(
        "orderbook",
        OrderbookAdapter,
        lambda adapter: adapter.record(BOOKED, budget=20),
        "PUT /entries/17",
        {
            "orderId": 17,
            "customerId": "c-42",
            "status": "BOOKED",
            "items": ITEMS,
            "total": {"amount": "1991.01", "currency": "RUB"},
            **{name: value for name, value in DETAILS.items() if name != "paymentUrl"},
        },
        None,
        None,
        "entry-17",
    ),
]


async def ask(asked: Asked, answer: bytes) -> tuple[Any, Received]:
    """Make the call against a peer that says `answer`; gives the result, and the request as it came."""
    async with serve(say(answer)) as peer, open_system(asked.system, section(peer.url), asked.adapter) as system:
        result = await asked.call(system.adapter)
    [received] = peer.received
    return result, received
