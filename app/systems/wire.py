"""What the systems' wire types have in common."""

from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints, ValidationInfo
from pydantic.alias_generators import to_camel

from app.orders.money import Money
from app.orders.order import Item
from app.text import legible


def _one_segment(value: str) -> str:
    if value in {".", ".."}:
        raise ValueError("cannot stand in a path")
    return value


def _asked_for(value: str, info: ValidationInfo) -> str:
    if value != info.context:
        raise ValueError("is not the one that was asked for")
    return value


Id = Annotated[
    str, StringConstraints(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$"), AfterValidator(_one_segment)
]
AskedId = Annotated[Id, AfterValidator(_asked_for)]
Reason = Annotated[str, AfterValidator(legible)]


class Wire(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


class Answer(Wire):
    """What a system says: unknown fields are ignored, those that are used must be as the contract has them."""

    model_config = ConfigDict(extra="ignore", validate_by_name=False)


class WireMoney(Wire):
    """An amount as an exact decimal string in major units."""

    amount: str
    currency: str

    @classmethod
    def of(cls, money: Money) -> Self:
        return cls(amount=f"{money.amount:f}", currency=money.currency)


class WireItem(Wire):
    sku: str
    quantity: int
    price: WireMoney

    @classmethod
    def of(cls, item: Item) -> Self:
        return cls(sku=item.sku, quantity=item.quantity, price=WireMoney.of(item.price))


def wire_items(items: tuple[Item, ...]) -> tuple[WireItem, ...]:
    return tuple(map(WireItem.of, items))
