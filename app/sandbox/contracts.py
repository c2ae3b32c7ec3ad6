"""The five systems as the sandbox plays them: what they are asked, what they answer and how they may end."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Told = Callable[[str], dict[str, Any]]  # from an operation's id to the fields an answer carries beside it


def nothing(_: str) -> dict[str, Any]:
    return {}


def reason(why: str) -> Told:
    return lambda _: {"reason": why}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """One system's wire contract, in the words of its openapi.yml.

    `accepts` is the answer to an order's first write and to every later one. `endings` holds the final statuses, the
    good one first, with what is told beside each; a system without endings keeps the written entry and reads it back.
    """

    name: str
    write: str
    read: str
    fields: tuple[str, ...]
    accepts: tuple[int, int]
    id_field: str = "id"
    accepted: Told = nothing
    pending: str = ""
    endings: Mapping[str, Told] = field(default_factory=dict)


CONTRACTS = (
    Contract(
        name="insurance",
        write="POST /applications",
        read="GET /orders/{orderId}/status",
        fields=("orderId", "customerId", "items"),
        accepts=(202, 202),
        id_field="applicationId",
        pending="PENDING",
        endings={"CONFIRMED": nothing, "REJECTED": reason("not insurable")},
    ),
    Contract(
        name="sber",
        write="POST /payments",
        read="GET /payments/{id}",
        fields=("orderId", "amount"),
        accepts=(201, 201),
        accepted=lambda payment: {"status": "REGISTERED", "paymentUrl": f"https://sber.example/pay/{payment}"},
        pending="REGISTERED",
        endings={"PAID": nothing, "DECLINED": reason("insufficient funds")},
    ),
    Contract(
        name="receipt",
        write="POST /receipts",
        read="GET /receipts/{id}",
        fields=("orderId", "paymentId", "items"),
        accepts=(202, 202),
        pending="QUEUED",
        endings={"ISSUED": lambda receipt: {"fiscalNumber": f"fiscal-{receipt}"}, "FAILED": nothing},
    ),
    Contract(
        name="odnakassa",
        write="POST /bookings",
        read="GET /bookings/{id}",
        fields=("orderId", "items"),
        accepts=(202, 202),
        pending="PENDING",
        endings={"BOOKED": lambda booking: {"tickets": [f"ticket-{booking}"]}, "FAILED": nothing},
    ),
    Contract(
        name="orderbook",
        write="PUT /entries/{orderId}",
        read="GET /entries/{orderId}",
        fields=("orderId", "customerId", "items"),
        accepts=(201, 200),
    ),
)
