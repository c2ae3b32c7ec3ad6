"""The one place where the parts are put together: API, worker, commands and tests enter here."""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Literal

import structlog

from app.db import Database, open_database
from app.embedded import PATIENCE as EMBEDDED_PATIENCE
from app.listener import Listener
from app.loop import Loop
from app.observability import metrics
from app.observability.history import History, history_kept
from app.observability.lag import loop_lag_measured
from app.observability.report import report
from app.orders import idempotency
from app.orders.inspection import Inspection
from app.orders.intake import Intake
from app.orders.journey import STEPS, Step, StepWork, journey
from app.orders.order import OrderStatus
from app.outbox import store
from app.outbox.news import News
from app.outbox.relay import Relay
from app.outbox.sink import Sink, open_sink
from app.retention import Retention, Sweep
from app.room import look_for_room
from app.settings import ConfigError, Settings, check_lease
from app.systems.insurance.adapter import InsuranceAdapter
from app.systems.odnakassa.adapter import OdnakassaAdapter
from app.systems.orderbook.adapter import OrderbookAdapter
from app.systems.receipt.adapter import ReceiptAdapter
from app.systems.sber.adapter import SberAdapter
from app.systems.system import ExternalSystem, open_system
from app.tasks.poller import Poller
from app.tasks.queue import CHANNEL, TaskQueue

log = structlog.get_logger()

Role = Literal["all", "api", "worker", "command"]
"""What the process is for: `all` is API and worker, a `command` does one thing and ends."""

ADAPTERS: dict[str, Any] = {
    "insurance": InsuranceAdapter,
    "sber": SberAdapter,
    "receipt": ReceiptAdapter,
    "odnakassa": OdnakassaAdapter,
    "orderbook": OrderbookAdapter,
}

FIGURES_INTERVAL = 15.0


class Wiring:
    """The running service: its parts by name, built once and closed in the reverse order."""

    def __init__(
        self, settings: Settings, database: Database, systems: Mapping[str, ExternalSystem[Any]], sink: Sink
    ) -> None:
        self.settings, self.database, self.systems = settings, database, systems
        self.steps = journey({name: system.adapter for name, system in systems.items()})
        self.queues = {step.table: TaskQueue(step.table, database.engine) for step in self.steps}
        self.step_queues = {step.begins: self.queues[step.table] for step in self.steps}
        self.intake = Intake(database.engine, self.step_queues, most=settings.api.commit_together)
        stalled = settings.health.stalled_after
        self.pollers = {step.table: self._poller(step, stalled) for step in self.steps}
        self.relay = Relay(database.engine, sink, settings.events, stalled_after=stalled)
        self.news = News(database.engine, settings.api, stalled_after=stalled)
        self.listener = Listener(
            database.connect_listener, {CHANNEL: self._heard, store.CHANNEL: self._heard_event}, self._ring_all
        )
        self.retention = Retention(self._sweeps(), settings.retention, stalled_after=stalled)
        self.inspection = Inspection(database.engine, settings)
        self.figures = Loop("figures", self._figures, stalled_after=stalled + FIGURES_INTERVAL)
        self.embedded = Loop("embedded postgres", database.watch_embedded, stalled_after=stalled + EMBEDDED_PATIENCE)
        self.history = History(systems)
        self.stopping = self._crowded = False

    def _poller(self, step: Step, stalled_after: float) -> Poller:
        rules, client = self.settings.tasks[step.table], self.settings.client[step.system]
        work = StepWork(step, self.step_queues, jitter=rules.jitter)
        return Poller(self.queues[step.table], work, rules, slots=client.max_concurrent, stalled_after=stalled_after)

    def _sweeps(self) -> dict[str, Sweep]:
        """By table: what deletes its old rows."""
        engine, settings = self.database.engine, self.settings
        sweeps: dict[str, Sweep] = {
            table: partial(queue.delete_completed, settings.tasks[table].retention)
            for table, queue in self.queues.items()
        }
        sweeps["outbox_event"] = partial(store.delete_published, engine, settings.events.retention)
        sweeps["idempotency_key"] = partial(idempotency.delete_old, engine, settings.api.idempotency_retention)
        return sweeps

    @property
    def stalled(self) -> list[str]:
        """The names of background loops that should be turning and are not."""
        loops = [loop for poller in self.pollers.values() for loop in (poller.claiming, poller.settling)]
        return [loop.name for loop in (*loops, self.relay.loop, self.news.loop) if loop.started and not loop.alive]

    def calls(self, system: str) -> bool:
        """Whether this replica works on the system's tasks. Where it does not, nothing ever moves its breaker."""
        return any(self.pollers[step.table].claiming.started for step in self.steps if step.system == system)

    def start(self, role: Role) -> None:
        """Start the loops that the role needs."""
        if role != "api":
            left_to_others = {table for table, rules in self.settings.tasks.items() if not rules.enabled}
            for table in self.pollers.keys() - left_to_others:
                self.pollers[table].start()
            for loop in (self.relay.loop, self.retention.loop, self.inspection.loop, self.figures):
                loop.start()
        if role != "worker":
            self.news.loop.start()
        if self.settings.pg.dsn is None:
            self.embedded.start()
        if self.database.has_own_sessions:
            self.listener.loop.start()
        else:
            log.warning("polling alone finds work: notifications do not pass PgBouncer, and pg.direct_dsn is not set")

    def quiesce(self) -> None:
        """The service is about to stop: readiness turns red, nothing more is claimed, streams end.

        Safe from a signal handler.
        """
        self.stopping = True
        self.news.close()
        for poller in self.pollers.values():
            poller.stop_claiming()
        self.relay.loop.stop()

    async def drain(self) -> None:
        """Finish or give back what is held, within the budget of `shutdown.poller`."""
        self.quiesce()
        began, within = time.monotonic(), self.settings.shutdown.poller
        async with asyncio.TaskGroup() as group:
            for poller in self.pollers.values():
                group.create_task(poller.drain(within))
            group.create_task(self.relay.drain(within))
            for loop in (self.listener.loop, self.news.loop, self.retention.loop, self.figures, self.embedded):
                group.create_task(loop.stopped(within))
            group.create_task(self.inspection.loop.stopped(0))  # it only reads: there is nothing to finish
        metrics.shutdown.labels("pollers").set(time.monotonic() - began)
        log.info("pollers drained", seconds=round(time.monotonic() - began, 3))

    def _heard(self, table: str) -> None:
        if poller := self.pollers.get(table):
            poller.claiming.ring()

    def _heard_event(self, _payload: str) -> None:
        self.relay.loop.ring()
        self.news.loop.ring()

    def _ring_all(self) -> None:
        for poller in self.pollers.values():
            poller.claiming.ring()
        self._heard_event("")

    async def _figures(self, loop: Loop) -> None:
        while not loop.stopping:
            loop.beat()
            for table, queue in self.queues.items():
                metrics.task_backlog(table, *await queue.figures())
            metrics.outbox_backlog(*await store.figures(self.database.engine))
            await loop.rest(FIGURES_INTERVAL)
            await self._count_connections()

    async def _count_connections(self) -> None:
        """Warn once when the server has too little room; after a while, so that who started along is there, too."""
        if self._crowded or self.settings.pg.pgbouncer:
            return
        async with self.database.engine.connect() as conn:
            room = await look_for_room(conn)
        if room.missing > 0:
            self._crowded = True
            log.warning("too many connections may be opened", problem=str(room))


def check_wiring(settings: Settings) -> None:
    """Check what only the wiring knows: every system and table has its section, and leases outlast calls."""
    problems = [
        f"client.{name}: missing; every system has a section" for name in ADAPTERS if name not in settings.client
    ]
    for step in STEPS:
        rules, client = settings.tasks.get(step.table), settings.client.get(step.system)
        if rules is None:
            problems.append(f"tasks.{step.table}: missing; every task table has a section")
        elif client is not None and (problem := check_lease(step.table, rules, step.system, client)):
            problems.append(problem)
    if problems:
        raise ConfigError(problems)


@asynccontextmanager
async def open_wiring(settings: Settings, role: Role = "all") -> AsyncIterator[Wiring]:
    """Open the service: database, systems and, unless it is for a command, the background loops; closed in reverse."""
    check_wiring(settings)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_database(settings.pg, application_name=f"orders-{role}"))
        systems = {
            name: await stack.enter_async_context(open_system(name, settings.client[name], adapter, report))
            for name, adapter in ADAPTERS.items()
        }
        for system in systems.values():
            metrics.watch(system.policy)
        metrics.pool_size.set(database.pool_size)
        metrics.pool_in_use.set_function(lambda: database.pool_in_use)
        metrics.pool_waiting.set_function(lambda: database.pool_waiting)
        metrics.start_at_zero(settings.tasks, OrderStatus)
        await stack.enter_async_context(loop_lag_measured())
        sink = await stack.enter_async_context(open_sink(settings.events))
        wiring = Wiring(settings, database, systems, sink)
        metrics.order_watches.set_function(lambda: wiring.news.watches)
        stack.push_async_callback(wiring.intake.idle)
        if role != "command":
            await stack.enter_async_context(history_kept(wiring.history))
            wiring.start(role)
            stack.push_async_callback(wiring.drain)
        yield wiring
