"""What an outsider can see of the running service and of the stand-ins, over HTTP."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from app.api.schemas import OrderPage, Queued, SystemsView, SystemView, TaskPage, TaskRow
from app.demo.samples import Sample
from app.demo.stage import DemoFailed

LOOK_INTERVAL = 0.1
PATIENCE = 60.0
"""Seconds within which whatever is waited for must have happened."""


@dataclass(slots=True)
class Witness:
    """Looks at one system and at the orders that it places itself; raises httpx.HTTPError or DemoFailed."""

    service: httpx.AsyncClient
    sandbox: httpx.AsyncClient
    system: str
    table: str
    placed: list[int] = field(default_factory=list)

    async def place(self, samples: Iterable[Sample]) -> tuple[Counter[int], float]:
        """Place orders; returns how often each status code came, and the seconds that the slowest answer took."""
        codes, slowest = Counter[int](), 0.0
        for sample in samples:
            began = time.monotonic()
            answer = await self.service.post("/orders", json=sample.body())
            slowest = max(slowest, time.monotonic() - began)
            codes[answer.status_code] += 1
            if answer.is_success:
                self.placed.append(Queued.model_validate_json(answer.content).order_id)
        return codes, slowest

    async def statuses(self) -> Counter[str]:
        """How many of the placed orders have each status."""
        page = OrderPage.model_validate_json(await _get(self.service, "/orders?limit=1000"))
        return Counter(order.status for order in page.orders if order.order_id in self.placed)

    async def waiting(self) -> list[TaskRow]:
        """The open tasks of the placed orders at the system."""
        path = f"/ops/tasks?task={self.table}&status=PENDING&status=IN_PROGRESS&limit=1000"
        page = TaskPage.model_validate_json(await _get(self.service, path))
        return [task for task in page.tasks if task.order_id in self.placed]

    async def seen(self) -> SystemView:
        """The system as the service sees it."""
        return SystemsView.model_validate_json(await _get(self.service, "/ops/systems")).systems[self.system]

    async def entered(self, state: str) -> int:
        """How often the system's breaker has entered the state."""
        labels = {"system": self.system, "to": state}
        for family in text_string_to_metric_families((await _get(self.service, "/metrics")).decode()):
            for sample in family.samples:
                if sample.name == "circuit_breaker_transitions_total" and sample.labels == labels:
                    return int(sample.value)
        return 0

    async def ready(self) -> int:
        """The status code of the service's readiness."""
        return (await self.service.get("/health/ready")).status_code

    async def turn(self, **knobs: Any) -> None:
        """Change how the stand-in behaves."""
        (await self.sandbox.put(f"/{self.system}/_control", json=knobs)).raise_for_status()

    async def calls(self) -> int:
        """How many calls the stand-in got, other than health probes."""
        counters = (await self.sandbox.get(f"/{self.system}/_control")).raise_for_status().json()["counters"]
        return sum(number for endpoint, number in counters["calls"].items() if endpoint != "GET /health")

    async def repeated_keys(self) -> int:
        """How often the stand-in met an Idempotency-Key again."""
        counters = (await self.sandbox.get(f"/{self.system}/_control")).raise_for_status().json()["counters"]
        return int(counters["repeated_keys"])

    async def ledger(self, system: str) -> dict[int, int]:
        """How many operations the system's stand-in carried out for each placed order."""
        kept = (await self.sandbox.get(f"/{system}/_control/orders")).raise_for_status().json()
        return {order: kept.get(str(order), 0) for order in self.placed}


async def until(condition: Callable[[], Awaitable[bool]], what: str, *, every: float = LOOK_INTERVAL) -> None:
    """Look again and again until it is so; raises DemoFailed after PATIENCE seconds."""
    deadline = time.monotonic() + PATIENCE
    while not await condition():
        if time.monotonic() > deadline:
            raise DemoFailed(f"waited {PATIENCE:g} s in vain: {what}")
        await asyncio.sleep(every)


async def _get(http: httpx.AsyncClient, path: str) -> bytes:
    return (await http.get(path)).raise_for_status().content


def attempts(tasks: Collection[TaskRow]) -> int:
    return sum(task.attempts for task in tasks)
