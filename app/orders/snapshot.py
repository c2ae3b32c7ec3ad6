"""An order as JSON: the column values of its row and the payload of its tasks."""

from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from app.orders.order import Item, Order, OrderStatus


@dataclass(frozen=True, slots=True)
class _Snapshot:
    customer_id: str
    items: tuple[Item, ...]
    status: OrderStatus
    details: dict[str, Any]


_ITEMS = TypeAdapter(tuple[Item, ...])
_DETAILS = TypeAdapter(dict[str, Any])
_SNAPSHOT = TypeAdapter(_Snapshot)


def load_items(text: str) -> tuple[Item, ...]:
    return _ITEMS.validate_json(text)


def dump_details(details: dict[str, Any]) -> str:
    return _DETAILS.dump_json(details).decode()


def load_details(text: str) -> dict[str, Any]:
    return _DETAILS.validate_json(text)


def dump_payload(order: Order) -> str:
    """What a step's call needs to know of the order, frozen when the step is enqueued."""
    return _SNAPSHOT.dump_json(_Snapshot(order.customer_id, order.items, order.status, order.details)).decode()


def load_payload(order_id: int, payload: str) -> Order:
    """The order as a step sees it; raises ValueError when the payload cannot be read."""
    snapshot = _SNAPSHOT.validate_json(payload)
    return Order(order_id, snapshot.customer_id, snapshot.items, snapshot.status, details=snapshot.details)
