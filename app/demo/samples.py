"""The sample orders, and how the sandbox behaves while they are on their way."""

from typing import Any, NamedTuple


class Sample(NamedTuple):
    """A customer and what it buys: article, quantity, price in roubles."""

    customer: str
    items: tuple[tuple[str, int, str], ...]

    def body(self) -> dict[str, Any]:
        """What `POST /orders` takes."""
        return {
            "customerId": self.customer,
            "items": [
                {"sku": sku, "quantity": quantity, "price": {"amount": price, "currency": "RUB"}}
                for sku, quantity, price in self.items
            ],
        }


SAMPLES = (
    Sample("c-1", (("concert-stalls", 2, "3490.00"),)),
    Sample("c-2", (("theatre-balcony", 1, "1990.00"),)),
    Sample("c-3", (("ballet-box", 2, "4200.00"), ("programme", 1, "350.50"))),
    Sample("c-4", (("football-north", 4, "1250.00"),)),
    Sample("c-5", (("cinema-row-9", 3, "480.00"), ("popcorn", 3, "299.90"))),
    Sample("c-6", (("museum-day", 1, "700.00"),)),
)

ONE_MORE = Sample("c-7", (("circus-ring", 2, "1500.00"),))

KNOBS: dict[str, dict[str, Any]] = {
    "insurance": {"mode": "slow", "latency_ms": 300, "polls_before_final": 1},
    "sber": {"mode": "slow", "latency_ms": 250},
    "receipt": {"mode": "slow", "latency_ms": 150},
    "odnakassa": {"mode": "slow", "latency_ms": 250},
    "orderbook": {"mode": "slow", "latency_ms": 100},
}
"""Slow enough to be watched, fast enough for a few seconds altogether."""
