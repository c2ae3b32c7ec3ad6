"""What the calls to each system were like in the last minutes: a ring of samples, taken from the metrics."""

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple

from app.observability import metrics

INTERVAL = 2.0
"""Seconds between two samples."""

SAMPLES = 150
"""So many are kept: five minutes."""

NOT_CALLS = {"not_made", "cancelled"}
"""Outcomes that say nothing of the system."""

FAILURES = {"unavailable", "invalid_answer"}


@dataclass(frozen=True, slots=True)
class Sample:
    """Calls per second, those among them that failed, and the mean seconds of a call (None: there was none)."""

    rate: float
    failing: float
    latency: float | None


class History:
    """The last SAMPLES samples of each system; this process's calls only."""

    def __init__(self, systems: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._rings: dict[str, deque[Sample]] = {name: deque(maxlen=SAMPLES) for name in systems}
        self._clock = clock
        self._taken, self._totals = clock(), _totals()

    def of(self, system: str) -> list[Sample]:
        """The system's samples, the oldest first."""
        return list(self._rings[system])

    def sample(self) -> None:
        """Add to each ring what has happened since the sample before."""
        taken, totals = self._clock(), _totals()
        elapsed = taken - self._taken
        for system, ring in self._rings.items():
            now, before = totals.get(system, _Totals()), self._totals.get(system, _Totals())
            calls, failed, seconds = (late - early for late, early in zip(now, before, strict=True))
            ring.append(Sample(calls / elapsed, failed / elapsed, seconds / calls if calls else None))
        self._taken, self._totals = taken, totals


@asynccontextmanager
async def history_kept(history: History) -> AsyncIterator[None]:
    """Take a sample every INTERVAL seconds."""

    async def keep() -> None:
        while True:
            await asyncio.sleep(INTERVAL)
            history.sample()

    keeping = asyncio.create_task(keep(), name="history")
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.wait({keeping})


class _Totals(NamedTuple):
    calls: float = 0
    failed: float = 0
    seconds: float = 0


def _totals() -> dict[str, _Totals]:
    """By system: all calls since the process began, how many of them failed, and how many seconds they took."""
    totals: dict[str, _Totals] = defaultdict(_Totals)
    (family,) = metrics.external_call.collect()
    for name, labels, value, *_ in family.samples:
        system, outcome = labels["system"], labels["outcome"]
        if outcome in NOT_CALLS:
            continue
        calls, failed, seconds = totals[system]
        if name.endswith("_count"):
            totals[system] = _Totals(calls + value, failed + value * (outcome in FAILURES), seconds)
        elif name.endswith("_sum"):
            totals[system] = _Totals(calls, failed, seconds + value)
    return totals
