"""A client of event streams that keeps what it was sent, as it came over the wire."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

JOURNEY = [
    *("order.accepted", "order.confirmed", "order.payment_registered", "order.paid", "order.receipt_issued"),
    *("order.booked", "order.completed"),
]


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


TIMEOUT = httpx.Timeout(20)


@dataclass
class Told:
    """An event of a stream; `data` is its CloudEvent."""

    id: str
    type: str
    data: dict[str, Any]


@dataclass
class Stream:
    """A stream as far as it was read; `ended` once the server has ended it."""

    answer: httpx.Response
    events: list[Told] = field(default_factory=list)
    comments: int = 0
    retry: int | None = None
    ended: bool = False

    @property
    def ids(self) -> list[int]:
        return [int(event.id) for event in self.events]

    @property
    def types(self) -> list[str]:
        return [event.type for event in self.events]

    async def read(self) -> None:
        fields: dict[str, str] = {}
        async for line in self.answer.aiter_lines():
            if line.startswith(":"):
                self.comments += 1
            elif line:
                name, _, value = line.partition(": ")
                fields[name] = value
            else:
                self._take(fields)
                fields = {}
        self.ended = True

    def _take(self, fields: dict[str, str]) -> None:
        if "retry" in fields:
            self.retry = int(fields["retry"])
        if "data" in fields:
            self.events.append(Told(fields["id"], fields["event"], json.loads(fields["data"])))

    async def until(self, count: int, seconds: float = 15) -> None:
        """Wait until so many events have come."""
        try:
            async with asyncio.timeout(seconds):
                while len(self.events) < count:
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"{len(self.events)} events, not {count}: {self.types}") from None


@asynccontextmanager
async def following(client: httpx.AsyncClient, order_id: int, **headers: str) -> AsyncIterator[Stream]:
    """Follow the order in the background until the block is left, which ends the connection."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.stream("GET", f"/orders/{order_id}/events", headers=named, timeout=TIMEOUT) as answer:
        assert answer.status_code == 200, (await answer.aread()).decode()
        stream = Stream(answer)
        reading = asyncio.create_task(stream.read())
        try:
            yield stream
        finally:
            reading.cancel()
            await asyncio.wait({reading})


async def followed(client: httpx.AsyncClient, order_id: int, seconds: float = 20, **headers: str) -> Stream:
    """The whole stream, from its beginning to its end."""
    async with following(client, order_id, **headers) as stream:
        async with asyncio.timeout(seconds):
            while not stream.ended:
                await asyncio.sleep(0.01)
        return stream


def is_problem(answer: httpx.Response, status: int) -> bool:
    problem = answer.headers["content-type"] == "application/problem+json"
    return problem and answer.status_code == status == answer.json()["status"]
