"""Money: an exact amount in one currency."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Money:
    """An amount in major units (roubles, not kopecks), exact to the last digit it was given with."""

    amount: Decimal
    currency: str

    def __add__(self, other: "Money") -> "Money":
        if other.currency != self.currency:
            raise ValueError(f"cannot add {other.currency} to {self.currency}")
        return Money(self.amount + other.amount, self.currency)

    def __mul__(self, times: int) -> "Money":
        return Money(self.amount * times, self.currency)
