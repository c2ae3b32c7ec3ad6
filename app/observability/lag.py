"""How late the event loop is: what blocks it blocks every request, call and timer of the process."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from app.observability import metrics

INTERVAL = 0.5


@asynccontextmanager
async def loop_lag_measured() -> AsyncIterator[None]:
    """Measure twice a second how much later than asked for a timer goes off."""
    measuring = asyncio.create_task(_measure(), name="event loop lag")
    try:
        yield
    finally:
        measuring.cancel()
        await asyncio.wait({measuring})


async def _measure() -> None:
    while True:
        due = time.monotonic() + INTERVAL
        await asyncio.sleep(INTERVAL)
        metrics.loop_lag.observe(max(time.monotonic() - due, 0))
