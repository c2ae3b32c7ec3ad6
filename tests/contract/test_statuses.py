"""Every operation answers with each of the statuses that it declares, and with no other."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from httpx_aiohttp import HttpxAiohttpClient
from sqlalchemy import text

from app.orders.intervene import cancel_order
from tests.contract.published import DOCUMENT
from tests.processes import free_port
from tests.service import ORDER, Sandbox, Service, service_running, settings_for

KEYS = {"all": ["orders:read", "orders:write", "ops"], "reader": ["orders:read"], "writer": ["orders:write"]}
GUARDED = {
    "ORDERS_AUTH__MODE": "api_key",
    "ORDERS_AUTH__KEYS": json.dumps(
        [{"name": n, "sha256": sha256(n.encode()).hexdigest(), "scopes": scopes} for n, scopes in KEYS.items()]
    ),
    "ORDERS_API__BODY_TIMEOUT": "0.3",
    "ORDERS_API__MAX_BODY_BYTES": "2000",
}


class Operation(NamedTuple):
    name: str
    method: str
    path: str
    takes_body: bool
    scope: str | None
    declared: set[int]


OPERATIONS = [
    Operation(
        told["operationId"],
        method.upper(),
        path,
        "requestBody" in told,
        next((scope for wanted in told["security"] for scope in wanted["apiKey"]), None),
        {int(status) for status in told["responses"]},
    )
    for path, methods in DOCUMENT["paths"].items()
    for method, told in methods.items()
]


@dataclass
class Asking:
    """Asks for an operation in every way there is, and notes how it answers."""

    client: HttpxAiohttpClient
    operation: Operation
    ids: dict[str, Any]

    async def answers(self) -> AsyncIterator[int]:
        body = {"json": ORDER if self.operation.name == "place_order" else {"reason": "a test"}}
        good: dict[str, Any] = body if self.operation.takes_body else {}
        yield await self.ask(**good)
        yield await self.ask(**good)  # the second time there is nothing left to cancel or retry
        yield await self.ask(headers={"If-None-Match": "*", "Last-Event-ID": str(self.ids["last_event"])})
        yield await self.ask(key=None, **good)
        for key in ("reader", "writer"):
            yield await self.ask(key=key, **good)
        yield await self.ask({**self.ids, "order_id": 10**9, "task_id": 10**9, "name": "nobody"}, **good)
        yield await self.ask({**self.ids, "order_id": 0, "task_id": 0, "name": "x" * 64}, "?limit=0", **good)
        if self.operation.takes_body:
            yield await self.ask(content=b"{}", headers={"Content-Type": "text/plain"})
            yield await self.ask(json={"unknown": True})
            yield await self.ask(json={"reason": "x" * 2000})
            yield await self.slowly()

    async def ask(
        self, ids: dict[str, Any] | None = None, query: str = "", key: str | None = "all", **request: Any
    ) -> int:
        headers = {**({"Authorization": f"Bearer {key}"} if key else {}), **request.pop("headers", {})}
        url = self.operation.path.format_map(ids or self.ids) + query
        return (await self.client.request(self.operation.method, url, headers=headers, **request)).status_code

    async def slowly(self) -> int:
        """Promise a body that never comes."""
        url = urlsplit(str(self.client.base_url))
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        head = f"POST {self.operation.path.format_map(self.ids)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer all\r\n"
        writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 10\r\n\r\n".encode())
        status = int((await reader.readline()).split()[1])
        writer.close()
        await writer.wait_closed()
        return status


async def prepared(service: Service, sandbox: Sandbox) -> dict[str, dict[str, Any]]:
    """Bring about something to show, to retry and to cancel; returns the ids by operation, "" for the others."""
    all_keys = {"Authorization": "Bearer all"}
    service.client.headers.update(all_keys)
    await sandbox.set("receipt", outcome="FAILED")
    await service.reach([failed := await service.place()], "RECEIPT_FAILED")
    await sandbox.set("insurance", polls_before_final=1000)
    waiting, gone = await service.place(), await service.place()
    await cancel_order(service.wiring.database.engine, service.wiring.queues, gone)
    rows = (await service.client.get("/ops/tasks?status=FAILED&status=PENDING&status=IN_PROGRESS")).json()["tasks"]
    tasks = {row["orderId"]: row["taskId"] for row in rows}
    other = await service.place()
    row = (await service.client.get("/ops/tasks?task=order_confirmation_task&limit=1")).json()["tasks"][0]
    assert row["orderId"] == other
    del service.client.headers["Authorization"]
    shown = {"order_id": gone, "last_event": 2, "name": "sber"}
    failed_task = {"task": "receipt_creation_task", "task_id": tasks[failed]}
    return {
        "": {**shown, **failed_task},
        "cancel": {**shown, **failed_task, "order_id": waiting},
        "cancel_task": {**shown, "task": "order_confirmation_task", "task_id": row["taskId"]},
    }


@pytest.mark.slow
async def test_operations_answer_as_declared(pg_dsn: str, sandbox: Sandbox) -> None:
    """What is declared happens, and what happens is declared: with and without keys, bodies, and a database."""
    seen: dict[str, set[int]] = {operation.name: set() for operation in OPERATIONS}
    async with service_running(settings_for(pg_dsn, sandbox.url, GUARDED)) as service:
        ids = await prepared(service, sandbox)
        for operation in OPERATIONS:
            asking = Asking(service.client, operation, ids.get(operation.name, ids[""]))
            seen[operation.name] |= {status async for status in asking.answers()}
        seen["place_order"] |= await key_troubles(service)
    async with service_running(settings_for(pg_dsn, sandbox.url, GUARDED), "api") as service:
        for operation in (operation for operation in OPERATIONS if operation.name.endswith("_system")):
            seen[operation.name].add(await Asking(service.client, operation, ids[""]).ask())
    nowhere = f"postgresql://nobody@127.0.0.1:{free_port()}/none"
    async with service_running(settings_for(nowhere, sandbox.url, GUARDED)) as service:
        for operation in OPERATIONS:
            asking = Asking(service.client, operation, ids.get(operation.name, ids[""]))
            body: dict[str, Any] = {"json": ORDER} if operation.name == "place_order" else {}
            seen[operation.name].add(await asking.ask(**body))
    assert seen == {operation.name: operation.declared for operation in OPERATIONS}


async def key_troubles(service: Service) -> set[int]:
    """A key that is malformed, one that was used for another order, and one that is being used."""
    lock = text("SELECT pg_advisory_xact_lock(hashtextextended('busy', hashtextextended('all', 0)))")

    async def place(key: str, **changes: Any) -> int:
        headers = {"Authorization": "Bearer all", "Idempotency-Key": key}
        return (await service.client.post("/orders", json={**ORDER, **changes}, headers=headers)).status_code

    statuses = {await place("two words"), await place("used"), await place("used", customerId="c-43")}
    async with service.wiring.database.engine.begin() as conn:
        await conn.execute(lock)
        return {*statuses, await place("busy")}
