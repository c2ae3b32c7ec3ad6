from typing import Annotated, Literal

from pydantic import Field

from app.systems.wire import Answer, AskedId, Id, Wire, WireItem


class Booking(Wire):
    order_id: int
    items: tuple[WireItem, ...]


class Created(Answer):
    id: Id


class Status(Answer):
    """`tickets` may be missing even from a BOOKED answer: the contract leaves it open."""

    id: AskedId
    status: Literal["PENDING", "BOOKED", "FAILED"]
    tickets: Annotated[tuple[Id, ...], Field(max_length=1000)] = ()
