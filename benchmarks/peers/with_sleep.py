"""FastAPI with the waiting in the handler: it asks the insurer again and again until there is an answer (ASYNC-X1)."""

import asyncio

from fastapi import FastAPI

from benchmarks.peers.order import NewOrder

app = FastAPI()


@app.post("/orders")
async def place(order: NewOrder) -> None:
    while order.items:  # for ever: no answer comes
        await asyncio.sleep(5)
