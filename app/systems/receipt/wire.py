from typing import Literal, Self

from pydantic import model_validator

from app.systems.wire import Answer, AskedId, Id, Wire, WireItem


class Receipt(Wire):
    order_id: int
    payment_id: str
    items: tuple[WireItem, ...]


class Created(Answer):
    id: Id


class Status(Answer):
    id: AskedId
    status: Literal["QUEUED", "ISSUED", "FAILED"]
    fiscal_number: Id | None = None

    @model_validator(mode="after")
    def _has_its_number(self) -> Self:
        if self.status == "ISSUED" and self.fiscal_number is None:
            raise ValueError("ISSUED without a fiscalNumber")
        return self
