"""The whole service inside the test's event loop, over real sockets, beside a sandbox."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from httpx_aiohttp import HttpxAiohttpClient

from app.main import Server, create_server
from app.sandbox.contracts import CONTRACTS
from app.sandbox.server import running_sandbox
from app.settings import Settings, load_settings
from app.wiring import Role, Wiring

SYSTEMS = tuple(contract.name for contract in CONTRACTS)

ORDER: dict[str, Any] = {
    "customerId": "c-42",
    "items": [{"sku": "TICKET", "quantity": 2, "price": {"amount": "1990.00", "currency": "RUB"}}],
}


@dataclass
class Sandbox:
    """The stand-ins, and the knobs that make them misbehave."""

    url: str
    client: HttpxAiohttpClient

    @property
    def environ(self) -> dict[str, str]:
        """The variables that lead a service here."""
        return {f"ORDERS_CLIENT__{name.upper()}__BASE_URL": f"{self.url}/{name}" for name in SYSTEMS}

    async def set(self, system: str, **knobs: Any) -> None:
        (await self.client.put(f"/{system}/_control", json=knobs)).raise_for_status()

    async def control(self, system: str) -> dict[str, Any]:
        return dict((await self.client.get(f"/{system}/_control")).json())

    async def calls(self, system: str) -> int:
        return sum((await self.control(system))["counters"]["calls"].values())

    async def operations(self, system: str) -> dict[str, int]:
        """How many operations each order has at the system."""
        return dict((await self.client.get(f"/{system}/_control/orders")).json())


@dataclass
class Service:
    """A running service and a client of its API."""

    server: Server
    wiring: Wiring
    client: HttpxAiohttpClient

    async def place(self, **changes: Any) -> int:
        answer = await self.client.post("/orders", json={**ORDER, **changes})
        assert answer.status_code == 202, answer.text
        return int(answer.json()["orderId"])

    async def order(self, order_id: int) -> dict[str, Any]:
        return dict((await self.client.get(f"/orders/{order_id}")).json())

    async def reach(self, order_ids: Iterable[int], status: str, seconds: float = 15) -> None:
        """Wait until every order has this status."""
        for order_id in order_ids:
            seen = ""
            try:
                async with asyncio.timeout(seconds):
                    while (seen := (await self.order(order_id))["status"]) != status:
                        await asyncio.sleep(0.02)
            except TimeoutError:
                raise AssertionError(f"order {order_id} is {seen}, not {status}") from None


PATIENCE = 30.0
"""Seconds that a test waits for an answer: on a machine that has much to do it may be a while."""

# verify=False: over plain HTTP there is nobody to verify, and loading the authorities takes longer than most tests


@asynccontextmanager
async def sandbox_running() -> AsyncIterator[Sandbox]:
    async with running_sandbox() as url, HttpxAiohttpClient(base_url=url, verify=False, timeout=PATIENCE) as client:
        yield Sandbox(url, client)


def settings_for(dsn: str, sandbox_url: str, environ: dict[str, str] | None = None) -> Settings:
    urls = {f"ORDERS_CLIENT__{name.upper()}__BASE_URL": f"{sandbox_url}/{name}" for name in SYSTEMS}
    return load_settings({"ORDERS_PG__DSN": dsn, "ORDERS_SHUTDOWN__POLLER": "0.5", **urls, **(environ or {})})


@asynccontextmanager
async def service_running(settings: Settings, role: Role = "all") -> AsyncIterator[Service]:
    server = create_server(settings, role, "127.0.0.1", 0)
    serving = asyncio.create_task(server.serve())
    try:
        async with asyncio.timeout(20):
            while not server.started:
                assert not serving.done(), "the service did not start"
                await asyncio.sleep(0.02)
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        async with HttpxAiohttpClient(base_url=url, verify=False, timeout=PATIENCE) as client:
            yield Service(server, server.app.state.wiring, client)
    finally:
        server.should_exit = True
        await serving
