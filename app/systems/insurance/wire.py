from typing import Literal

from app.systems.wire import Answer, Id, Reason, Wire, WireItem


class Application(Wire):
    order_id: int
    customer_id: str
    items: tuple[WireItem, ...]


class Applied(Answer):
    application_id: Id


class Status(Answer):
    status: Literal["PENDING", "CONFIRMED", "REJECTED"]
    reason: Reason | None = None
