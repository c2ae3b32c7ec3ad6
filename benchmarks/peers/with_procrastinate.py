"""FastAPI and procrastinate: the API defers a job, `python -m benchmarks.peers.with_procrastinate` works on them."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import httpx
import procrastinate
from fastapi import FastAPI, Request, Response

from benchmarks.peers.order import NewOrder, Queued

jobs = procrastinate.App(
    connector=procrastinate.PsycopgConnector(conninfo=os.environ["PEER_DSN"], min_size=10, max_size=10)
)
insurer = httpx.AsyncClient(base_url=os.environ["PEER_INSURER"])


@jobs.task(queue="insurance", name="confirm")  # type: ignore[untyped-decorator]  # the library is not installed here
async def confirm(order_id: int) -> None:
    answer = await insurer.get(f"/orders/{order_id}/status")
    answer.raise_for_status()


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with asyncpg.create_pool(os.environ["PEER_DSN"], min_size=10, max_size=10) as pool, jobs.open_async():
        app.state.pool = pool
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def place(request: Request, wanted: NewOrder, response: Response) -> Queued:
    items = "[" + ",".join(item.model_dump_json() for item in wanted.items) + "]"
    order_id = await request.app.state.pool.fetchval(
        "INSERT INTO plain_order (customer_id, items) VALUES ($1, $2) RETURNING id", wanted.customerId, items
    )
    job_id = await confirm.defer_async(order_id=order_id)
    response.headers["Location"] = f"/orders/{order_id}"
    return Queued(orderId=order_id, taskId=job_id)


async def fill(count: int) -> None:
    async with jobs.open_async():
        await confirm.batch_defer_async(*({"order_id": n} for n in range(count)))


async def work() -> None:
    async with jobs.open_async():
        await jobs.run_worker_async(concurrency=8)


if __name__ == "__main__":
    asyncio.run(fill(int(sys.argv[1])) if sys.argv[1:] else work())
