"""The way of the sample orders, seen from outside: placed and followed over HTTP."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx

from app.api.schemas import OrderView, Queued
from app.demo.samples import Sample

LOOK_INTERVAL = 0.1


@dataclass(slots=True)
class PlacedOrder:
    """An order, as it was when last looked at; `seconds` it took so far, or altogether."""

    view: OrderView
    seconds: float = 0.0
    placed_at: float = field(default_factory=time.monotonic)

    @property
    def completed(self) -> bool:
        return self.view.status == "COMPLETED"

    @property
    def errors(self) -> list[str]:
        """What went wrong, in words for a person."""
        steps = [f"{step.system}: {step.error}" for step in self.view.steps if step.error]
        return [self.view.reason, *steps] if self.view.reason else steps

    async def look(self, http: httpx.AsyncClient) -> None:
        self.view = await _view(http, self.view.order_id)
        self.seconds = time.monotonic() - self.placed_at


async def place(http: httpx.AsyncClient, sample: Sample) -> PlacedOrder:
    """Place the order; raises httpx.HTTPError when it is not taken."""
    answer = await http.post("/orders", json=sample.body())
    answer.raise_for_status()
    return PlacedOrder(await _view(http, Queued.model_validate_json(answer.content).order_id))


async def follow(http: httpx.AsyncClient, orders: Sequence[PlacedOrder], show: Callable[[], None]) -> None:
    """Look at the orders and `show` them until all are final; raises httpx.HTTPError."""
    while on_their_way := [order for order in orders if not order.view.final]:
        await asyncio.sleep(LOOK_INTERVAL)
        await asyncio.gather(*(order.look(http) for order in on_their_way))
        show()


async def _view(http: httpx.AsyncClient, order_id: int) -> OrderView:
    answer = await http.get(f"/orders/{order_id}")
    answer.raise_for_status()
    return OrderView.model_validate_json(answer.content)
