"""FastAPI and pgqueuer: the API enqueues a job, `python -m benchmarks.peers.with_pgqueuer` works on them."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import httpx
from fastapi import FastAPI, Request, Response
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from benchmarks.peers.order import NewOrder, Queued


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with asyncpg.create_pool(os.environ["PEER_DSN"], min_size=10, max_size=10) as pool:
        app.state.pool = pool
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def place(request: Request, wanted: NewOrder, response: Response) -> Queued:
    items = "[" + ",".join(item.model_dump_json() for item in wanted.items) + "]"
    async with request.app.state.pool.acquire() as connection, connection.transaction():
        order_id = await connection.fetchval(
            "INSERT INTO plain_order (customer_id, items) VALUES ($1, $2) RETURNING id", wanted.customerId, items
        )
        (job_id,) = await Queries(AsyncpgDriver(connection)).enqueue("confirm", str(order_id).encode())
    response.headers["Location"] = f"/orders/{order_id}"
    return Queued(orderId=order_id, taskId=int(job_id))


async def fill(count: int) -> None:
    connection = await asyncpg.connect(os.environ["PEER_DSN"])
    ids = [str(n).encode() for n in range(count)]
    await Queries(AsyncpgDriver(connection)).enqueue(["confirm"] * count, ids, [0] * count)
    await connection.close()


async def work() -> None:
    jobs = PgQueuer(AsyncpgDriver(await asyncpg.connect(os.environ["PEER_DSN"])))
    insurer = httpx.AsyncClient(base_url=os.environ["PEER_INSURER"])

    @jobs.entrypoint("confirm", concurrency_limit=8)  # type: ignore[untyped-decorator]  # not installed here
    async def confirm(job: Job) -> None:
        assert job.payload is not None
        answer = await insurer.get(f"/orders/{job.payload.decode()}/status")
        answer.raise_for_status()

    await jobs.run(batch_size=50)


if __name__ == "__main__":
    asyncio.run(fill(int(sys.argv[1])) if sys.argv[1:] else work())
