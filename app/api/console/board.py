"""What the console's first page shows: systems and tables, what has failed, and what operators did."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from app import audit
from app.api.console.listing import ListedTask, failed_tasks
from app.api.console.sparkline import Sparkline, sparkline
from app.api.schemas import not_called
from app.audit import REPLICA, OperatorAction
from app.observability.history import Sample
from app.outbox import store
from app.resilience import PolicySnapshot
from app.systems.health import Condition
from app.systems.system import ExternalSystem
from app.tasks.standing import Standing, standing
from app.wiring import Wiring

COUNTED = 1000
"""Beyond this no row is counted."""

FAILED_SHOWN = ACTIONS_SHOWN = 10
RECENT = 5
"""Samples that "now" is made of: ten seconds."""

PATIENCE = 0.2
"""Seconds that the page waits for a health probe; what it finds is there the next time."""


@dataclass(frozen=True, slots=True)
class SystemCard:
    """A system as this replica sees it: rates per second, latency in seconds."""

    name: str
    called: bool
    policy: PolicySnapshot
    connections: int
    connections_in_use: int
    condition: Condition | None
    rate: float
    failing: float
    latency: float | None
    curve: Sparkline

    @property
    def state(self) -> str:
        return "isolated" if self.policy.isolated else self.policy.state


@dataclass(frozen=True, slots=True)
class TableRow:
    """A task table: `standing` for all replicas, `in_flight` of this one."""

    system: str
    standing: Standing
    in_flight: int


@dataclass(frozen=True, slots=True)
class Ledger:
    """What stands in the database."""

    tables: list[TableRow]
    outbox: store.Figures
    failed: list[ListedTask]
    actions: list[OperatorAction]


@dataclass(frozen=True, slots=True)
class Board:
    """`ledger` is None while the database does not answer; `problems` says so, and what else is wrong here.

    `note` is there if this replica does not call all systems.
    """

    at: datetime
    replica: str
    note: str | None
    problems: list[str]
    systems: list[SystemCard]
    ledger: Ledger | None
    counted: int = COUNTED


async def read_board(wiring: Wiring) -> Board:
    await _probe(wiring)
    unreachable = await wiring.database.ping()
    uncalled = [name for name in wiring.systems if not wiring.calls(name)]
    problems = [f"background loop {name} is stalled" for name in wiring.stalled]
    if wiring.stopping:
        problems.append("this replica is stopping")
    if unreachable is not None:
        problems.append(f"the database cannot be reached: {unreachable}")
    return Board(
        at=datetime.now(UTC),
        replica=REPLICA,
        note=not_called(*uncalled) if uncalled else None,
        problems=problems,
        systems=[_card(wiring, system) for system in wiring.systems.values()],
        ledger=await _read_ledger(wiring) if unreachable is None else None,
    )


async def _probe(wiring: Wiring) -> None:
    """Let conditions that are too old be looked at anew."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(system.health.check() for system in wiring.systems.values()))


def _card(wiring: Wiring, system: ExternalSystem[Any]) -> SystemCard:
    snapshot, samples = system.snapshot(), wiring.history.of(system.name)
    recent = samples[-RECENT:]
    calls = sum(sample.rate for sample in recent)
    return SystemCard(
        name=system.name,
        called=wiring.calls(system.name),
        policy=snapshot.policy,
        connections=wiring.settings.client[system.name].pool_size,
        connections_in_use=snapshot.connections_in_use,
        condition=snapshot.condition,
        rate=calls / RECENT,
        failing=sum(sample.failing for sample in recent) / RECENT,
        latency=_mean_latency(recent) if calls else None,
        curve=sparkline(samples),
    )


def _mean_latency(samples: list[Sample]) -> float:
    return sum((s.latency or 0.0) * s.rate for s in samples) / sum(s.rate for s in samples)


async def _read_ledger(wiring: Wiring) -> Ledger:
    engine, tables = wiring.database.engine, list(wiring.queues)
    async with engine.connect() as conn:
        standings = await standing(conn, tables, COUNTED)
        actions = await audit.page(conn, most=ACTIONS_SHOWN)
    return Ledger(
        tables=[
            TableRow(step.system, stands, wiring.pollers[step.table].in_flight)
            for step, stands in zip(wiring.steps, standings, strict=True)
        ],
        outbox=await store.figures(engine, COUNTED),
        failed=[task for table in tables for task in await failed_tasks(wiring, table, FAILED_SHOWN)],
        actions=actions,
    )
