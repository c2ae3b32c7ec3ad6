"""The least that can be done: Starlette and asyncpg, one statement for both rows, and only JSON is checked."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

SAVE = """
WITH saved AS (INSERT INTO plain_order (customer_id, items) VALUES ($1, $2) RETURNING id)
INSERT INTO plain_task (order_id, status, next_attempt_at, payload)
SELECT id, 'PENDING', now(), $2 FROM saved RETURNING order_id, task_id"""


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    async with asyncpg.create_pool(os.environ["PEER_DSN"], min_size=10, max_size=10) as pool:
        app.state.pool = pool
        yield


async def place(request: Request) -> Response:
    order: dict[str, Any] = orjson.loads(await request.body())
    items = orjson.dumps(order["items"]).decode()
    order_id, task_id = await request.app.state.pool.fetchrow(SAVE, order["customerId"], items)
    queued = {"status": "queued", "orderId": order_id, "taskId": task_id}
    return Response(orjson.dumps(queued), 202, {"Location": f"/orders/{order_id}"}, "application/json")


app = Starlette(routes=[Route("/orders", place, methods=["POST"])], lifespan=lifespan)
