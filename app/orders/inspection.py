"""Looks at the invariants every now and then, so that broken data raises an alert and not a customer."""

import random
import time

import structlog
from sqlalchemy.ext.asyncio import AsyncEngine

from app.loop import Loop
from app.observability import metrics
from app.orders.invariants import inspect
from app.settings import Settings

log = structlog.get_logger()


class Inspection:
    """One look after another, each at most as long as the statements' own timeouts allow. It changes nothing."""

    def __init__(self, engine: AsyncEngine, settings: Settings) -> None:
        self._engine, self._settings, self._rules = engine, settings, settings.invariants
        longest_rest = max(self._rules.first_after, self._rules.interval) * (1 + self._rules.jitter)
        self.loop = Loop("invariants", self._run, stalled_after=settings.health.stalled_after + longest_rest)

    async def _run(self, loop: Loop) -> None:
        pause = self._rules.first_after
        while not loop.stopping:
            loop.beat()
            await loop.rest(pause * (1 + self._rules.jitter * random.random()))  # noqa: S311
            if not loop.stopping:
                metrics.invariant_checks.labels(await self._look()).inc()
            pause = self._rules.interval

    async def _look(self) -> str:
        """Look once; returns the outcome."""
        settings = self._settings
        try:
            async with self._engine.connect() as conn:
                found = await inspect(
                    conn, settings.tasks, settings.events, statement_timeout=self._rules.statement_timeout
                )
        except Exception as error:  # noqa: BLE001 - whatever it was, the next look comes, and the metric tells
            log.warning("the invariants could not be looked at", error=repr(error))
            return "failed"
        if found is None:
            return "left_to_another"
        metrics.invariants_hold(found, time.time())
        if broken := {name: count for name, count in found.items() if count}:
            log.error("invariants are broken: python -m app invariants shows the orders", broken=broken)
        return "done"
