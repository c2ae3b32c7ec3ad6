"""Retention: deletes what is finished and old, a few rows at a time, so that nobody notices."""

import random
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

from app.loop import Loop
from app.observability import metrics
from app.settings import RetentionSettings

LOCK = 7_305_180_115
"""The advisory lock of whoever deletes old rows, taken for one batch: one replica at a time is busy with it."""

Sweep = Callable[[int], AsyncGenerator[int, None]]
"""Deletes a table's old rows in transactions of at most so many rows; yields after each how many it has deleted."""


class Retention:
    """Sweeps the tables every now and then, resting after each batch: others' work goes first."""

    def __init__(self, sweeps: Mapping[str, Sweep], rules: RetentionSettings, *, stalled_after: float) -> None:
        self._sweeps, self._rules = sweeps, rules
        longest_rest = rules.interval * (1 + rules.jitter)
        self.loop = Loop("retention", self._run, stalled_after=stalled_after + longest_rest)

    async def _run(self, loop: Loop) -> None:
        while not loop.stopping:
            loop.beat()
            await loop.rest(self._rules.interval * (1 + self._rules.jitter * random.random()))  # noqa: S311
            for table, sweep in self._sweeps.items():
                await self._sweep(table, sweep, loop)

    async def _sweep(self, table: str, sweep: Sweep, loop: Loop) -> None:
        async with aclosing(sweep(self._rules.batch)) as batches:
            while not loop.stopping and (deleted := await anext(batches, None)) is not None:
                loop.beat()
                metrics.rows_deleted.labels(table).inc(deleted)
                await loop.rest(self._rules.pause)
