"""A caller of the stand-ins, in the words of their contracts."""

from typing import Any, NamedTuple

import aiohttp
import httpx
import pytest
from httpx_aiohttp import AiohttpTransport

from app.sandbox.contracts import CONTRACTS, Contract

MONEY = {"amount": "1990.00", "currency": "RUB"}
BODY = {
    "customerId": "c-42",
    "items": [{"sku": "seat", "quantity": 1, "price": MONEY}],
    "amount": MONEY,
    "paymentId": "p-1",
}
EVERY = pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.name)
POLLED = pytest.mark.parametrize(
    "contract", [contract for contract in CONTRACTS if contract.endings], ids=lambda contract: contract.name
)


class Caller(NamedTuple):
    """Calls one sandbox in the words of a contract."""

    http: httpx.AsyncClient

    async def write(self, contract: Contract, order_id: int = 1, key: str | None = "k-1") -> httpx.Response:
        method, path = contract.write.split()
        headers = {} if key is None else {"Idempotency-Key": key}
        url = f"/{contract.name}{path.replace('{orderId}', str(order_id))}"
        return await self.http.request(method, url, json={"orderId": order_id, **BODY}, headers=headers)

    async def read(self, contract: Contract, order_id: int, operation_id: str = "") -> httpx.Response:
        path = contract.read.split()[1].replace("{orderId}", str(order_id)).replace("{id}", operation_id)
        return await self.http.get(f"/{contract.name}{path}")

    async def applied(self, contract: Contract, order_id: int = 1) -> dict[str, Any]:
        """Apply for the order and return what is told of it next."""
        written = (await self.write(contract, order_id, key=f"k-{order_id}")).json()
        told: dict[str, Any] = (await self.read(contract, order_id, written.get("id", ""))).json()
        return told

    async def turn(self, contract: Contract, **knobs: Any) -> httpx.Response:
        return await self.http.put(f"/{contract.name}/_control", json=knobs)

    async def counters(self, contract: Contract) -> dict[str, Any]:
        counters: dict[str, Any] = (await self.http.get(f"/{contract.name}/_control")).json()["counters"]
        return counters


def client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, transport=AiohttpTransport(verify=False, client=no_hidden_retry))


def no_hidden_retry() -> aiohttp.ClientSession:
    session = aiohttp.ClientSession()
    session._retry_connection = False  # aiohttp repeats a GET or PUT that was cut, and these tests count calls
    return session
