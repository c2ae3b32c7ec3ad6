"""The events that the webhook sink sends, as OpenAPI describes webhooks; docs/events.md says what they promise."""

import json
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, create_model
from pydantic.alias_generators import to_camel, to_pascal

from app.api.described import parameter
from app.api.schemas.orders import Reference, Tickets
from app.api.schemas.wire import Address, Text, View, told
from app.orders.order import MOVES, Order, OrderStatus
from app.outbox.cloudevent import MEDIA_TYPE, encode
from app.outbox.store import StoredEvent

EVENT_ID = "6c1f1a52-6d3c-4f43-8d7e-0a6a3c2f9b11"
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

FIELDS: dict[str, tuple[Any, Any]] = {
    "reason": (Text, "rejected: the customer is not insurable"),
    "application_id": (Reference, "app-7"),
    "payment_id": (Reference, "pay-7"),
    "payment_url": (Address, "https://pay.example/7"),
    "receipt_id": (Reference, "rcp-7"),
    "fiscal_number": (Reference, "9960440300000001"),
    "booking_id": (Reference, "bkg-7"),
    "tickets": (Tickets, ["TKT-1", "TKT-2"]),
}
"""What an event's data may hold besides the two statuses: its type, and an example."""


class EventType(NamedTuple):
    """When events of a type are sent, and which FIELDS their data holds."""

    when: str
    fields: tuple[str, ...] = ()


EVENT_TYPES = {
    "order.accepted": EventType("The order is saved."),
    "order.confirmed": EventType("The insurance confirms the order.", ("application_id",)),
    "order.rejected": EventType("The insurance rejects the order; it is final.", ("reason",)),
    "order.payment_registered": EventType("The customer can pay now.", ("payment_id", "payment_url")),
    "order.paid": EventType("The bank has the money."),
    "order.payment_declined": EventType("The bank declines the payment; the order is final.", ("reason",)),
    "order.receipt_issued": EventType("The fiscal receipt has its number.", ("receipt_id", "fiscal_number")),
    "order.booked": EventType("The tickets are booked.", ("booking_id", "tickets")),
    "order.completed": EventType("The order stands in the order book; it is final."),
    "order.cancelled": EventType("Somebody cancels the order before its payment; it is final.", ("reason",)),
    "order.step_failed": EventType("A step has failed for good; an operator has to look.", ("reason",)),
    "order.step_retried": EventType("An operator retries the failed step."),
}


class CloudEvent(View):
    """The attributes that every event has: CloudEvents 1.0 with the extensions `sequence` and `traceparent`."""

    specversion: Literal["1.0"]
    id: Annotated[str, told(format="uuid")]
    source: Address
    subject: Annotated[str, told(minLength=1, maxLength=19, pattern="^[0-9]+$")]
    time: datetime
    sequence: Annotated[str, told(minLength=10, maxLength=10, pattern="^[0-9]+$")]
    traceparent: Annotated[str, told(minLength=55, maxLength=55), Field(default_factory=str)]
    datacontenttype: Literal["application/json"]


def _ways(event_type: str) -> tuple[list[OrderStatus | None], list[OrderStatus]]:
    """The statuses that events of this type may lead from, and to."""
    moves = [move for move in MOVES.values() if move.event == event_type]
    if not moves:
        return [None], [Order(1, "", ()).status]
    starts, ends = {start for move in moves for start in move.starts}, {move.ends for move in moves}
    return [*sorted(starts)], sorted(ends)


def _model(event_type: str) -> type[CloudEvent]:
    name, (previous, status) = _name(event_type), _ways(event_type)
    fields: dict[str, Any] = {field: FIELDS[field][0] for field in EVENT_TYPES[event_type].fields}
    fields |= {"previous": Literal[tuple(previous)], "status": Literal[tuple(status)]}
    attributes: dict[str, Any] = {
        "type": Literal[event_type],
        "data": create_model(f"{name}Data", __base__=View, **fields),
    }
    return create_model(name, __base__=CloudEvent, **attributes)


def _name(event_type: str) -> str:
    return to_pascal(event_type.replace(".", "_"))


def _example(event_type: str) -> Any:
    """An event as it would go out."""
    previous, status = _ways(event_type)
    fields = {to_camel(field): FIELDS[field][1] for field in EVENT_TYPES[event_type].fields}
    data = json.dumps({"status": status[0], "previous": previous[0], **fields})
    time = datetime(2026, 11, 2, 12, 0, 0, 123456, UTC)
    stored = StoredEvent(EVENT_ID, 1, 42, 2, event_type, data, time, TRACEPARENT, 1, 1)
    return json.loads(encode(stored, "/orders"))


MODELS = tuple(map(_model, EVENT_TYPES))
EXAMPLES = {_name(event_type): {"value": _example(event_type)} for event_type in EVENT_TYPES}


def _always(name: str, description: str, example: str, longest: int, pattern: str) -> dict[str, Any]:
    return parameter(name, description, example, required=True, minLength=1, maxLength=longest, pattern=pattern)


PARAMETERS = {
    header["name"]: header
    for header in (
        _always("webhook-id", "The event's id: the same whenever it comes.", EVENT_ID, 36, "^[0-9a-f-]+$"),
        _always("webhook-timestamp", "Unix seconds of this attempt.", "1793620800", 12, "^[0-9]+$"),
        _always(
            "webhook-signature",
            "Standard Webhooks: `v1,` and a HMAC-SHA256 in base64, for each secret in use.",
            "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
            1000,
            "^v1,[A-Za-z0-9+/=]+( v1,[A-Za-z0-9+/=]+)*$",
        ),
    )
}


def webhooks() -> dict[str, Any]:
    """The section of the document."""
    return {event_type: {"post": _operation(event_type, kind)} for event_type, kind in EVENT_TYPES.items()}


def _operation(event_type: str, kind: EventType) -> dict[str, Any]:
    schema = {"$ref": f"#/components/schemas/{_name(event_type)}"}
    return {
        "operationId": event_type.replace(".", "_"),
        "tags": ["events"],
        "summary": event_type,
        "description": kind.when,
        "security": [],
        "parameters": [{"$ref": f"#/components/parameters/{name}"} for name in PARAMETERS],
        "requestBody": {"required": True, "content": {MEDIA_TYPE: {"schema": schema}}},
        "responses": {
            "2XX": {"description": "Taken. The body is not read."},
            "410": {"description": "Nothing more is wanted: the event is parked at once."},
            "default": {"description": "Tried again later, not before the seconds of Retry-After."},
        },
    }
