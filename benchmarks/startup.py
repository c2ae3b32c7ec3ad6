"""From the command to the first answer: the service on a database that is there, and a small FastAPI application."""

import time

from benchmarks.rig import Rig
from benchmarks.row import Row, compared


async def measure(rig: Rig, *, rounds: int) -> list[Row]:
    pairs = []
    async with rig.database() as dsn, rig.peers() as peers:
        for _ in range(rounds):
            began = time.perf_counter()
            with rig.service(dsn):
                ours = time.perf_counter() - began
            began = time.perf_counter()
            with peers.server("orm"):
                pairs.append((ours, time.perf_counter() - began))
    return [compared("start-up", "until ready", "FastAPI + SQLAlchemy ORM", pairs, "s", more_is_better=False)]
