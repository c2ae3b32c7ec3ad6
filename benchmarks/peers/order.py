"""An order as the FastAPI peers take it in."""

from pydantic import BaseModel


class Price(BaseModel):
    amount: str
    currency: str


class Item(BaseModel):
    sku: str
    quantity: int
    price: Price


class NewOrder(BaseModel):
    customerId: str  # noqa: N815  as it is on the wire
    items: list[Item]


class Queued(BaseModel):
    orderId: int  # noqa: N815
    taskId: int  # noqa: N815
    status: str = "queued"
