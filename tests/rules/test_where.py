"""Where protection stands: around external systems, in tables, not around the database."""

import asyncio
from dataclasses import dataclass, field

import pytest
from sqlalchemy import text

from app.db import Database
from app.orders.ports import SystemUnavailable
from app.outbox.relay import Relay
from app.outbox.store import StoredEvent
from app.settings import load_settings
from app.systems.orderbook.adapter import OrderbookAdapter
from app.systems.system import open_system
from tests.component.systems import hostile
from tests.component.systems.orders import ORDER as DOMAIN_ORDER
from tests.component.systems.sections import QUICK, section
from tests.rules.sources import imported, modules
from tests.service import ORDER, Sandbox, Service, service_running, settings_for

NOWHERE = "postgresql://u@127.0.0.1:1/orders"
UNPROTECTED = ("db.py", "listener.py", "loop.py", "embedded.py", "orders/", "outbox/store.py", "tasks/")
PORTS = "orders/ports.py"
"""Its errors carry the verdicts that the policies judge by."""
PROTECTION = ("app.resilience", "aiobreaker", "tenacity")


@pytest.mark.rule("WHERE-2")
async def test_an_internal_service_is_protected_like_a_foreign_one() -> None:
    """An order book that hangs is given up at the deadline, and not asked any more after ten such calls."""
    async with (
        hostile.serve(hostile.hang) as peer,
        open_system("orderbook", section(peer.url, max_concurrent=10, **QUICK), OrderbookAdapter) as book,
        asyncio.timeout(30),
    ):
        calls = (book.adapter.record(DOMAIN_ORDER, budget=20) for _ in range(10))
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert {type(end) for end in ends} == {SystemUnavailable}
        with pytest.raises(SystemUnavailable) as refused:
            await book.adapter.record(DOMAIN_ORDER, budget=20)
        assert refused.value.kind == "circuit_open"
        assert len(peer.received) == 10


@pytest.mark.rule("WHERE-3", "RE-4")
async def test_an_outage_is_waited_out_in_the_table(pg_dsn: str, database: Database, sandbox: Sandbox) -> None:
    """Attempts and the time of the next one stand in the row: the process that comes after a restart goes on there."""
    await sandbox.set("insurance", mode="error")
    settings = settings_for(pg_dsn, sandbox.url)
    row = text("SELECT status, retry_count, next_attempt_at > now(), last_error FROM order_confirmation_task")
    async with service_running(settings) as service:
        order_id = await service.place()
        async with asyncio.timeout(10), database.engine.connect() as conn:
            while (found := (await conn.execute(row)).one()).last_error is None:
                await asyncio.sleep(0.02)
    assert tuple(found) == ("PENDING", 1, True, "http_503: insurance: apply: HTTP 503")
    await sandbox.set("insurance", mode="ok")
    async with service_running(settings) as service:
        await service.reach([order_id], "COMPLETED")


@pytest.mark.rule("RE-5", "WHERE-3")
async def test_the_poll_finds_what_nobody_announced(pg_dsn: str, sandbox: Sandbox) -> None:
    """With LISTEN impossible an order goes all the way by polls alone, which come every 5 s unless configured."""
    assert {task.poll_interval for task in load_settings({}).tasks.values()} == {5}
    deaf = {"ORDERS_PG__DIRECT_DSN": NOWHERE, "ORDERS_TASKS__DEFAULT__POLL_INTERVAL": "0.3"}
    async with service_running(settings_for(pg_dsn, sandbox.url, deaf)) as service:
        await asyncio.sleep(0.5)
        await service.reach([await service.place()], "COMPLETED")


@dataclass
class Sink:
    """Takes events, or fails to."""

    works: bool
    seen: list[str] = field(default_factory=list)

    async def publish(self, event: StoredEvent) -> None:
        self.seen.append(event.event_id)
        if not self.works:
            raise SystemUnavailable("sink", "nobody listens")


@pytest.mark.rule("WHERE-3")
async def test_the_relay_retries_through_its_table(pg_dsn: str, database: Database) -> None:
    """An event that could not be published stays in the outbox, and another relay publishes it under the same id."""
    rules = load_settings({"ORDERS_EVENTS__BACKOFF_CAP": "1"}).events
    row = text("SELECT status, attempts FROM outbox_event WHERE last_error IS NOT NULL OR status = 'PUBLISHED'")

    async def relayed(sink: Sink, status: str, attempts: int) -> None:
        relay = Relay(database.engine, sink, rules, stalled_after=30)
        relay.loop.start()
        async with asyncio.timeout(10), database.engine.connect() as conn:
            while (await conn.execute(row)).first() != (status, attempts):
                await asyncio.sleep(0.02)
        await relay.loop.stopped(5)

    async with service_running(settings_for(pg_dsn, "http://127.0.0.1:1"), "api") as intake:
        await intake.place()
    broken, working = Sink(works=False), Sink(works=True)
    await relayed(broken, "PENDING", 1)
    await relayed(working, "PUBLISHED", 2)
    assert len(working.seen) == 1
    assert working.seen == broken.seen


@pytest.mark.rule("WHERE-4")
async def test_how_often_a_client_calls_is_not_our_business(service: Service) -> None:
    """One client's 300 requests in a row are all answered: rates are the gateway's, and no operation knows a 429."""
    order_id = await service.place()
    answers = {(await service.client.get(f"/orders/{order_id}")).status_code for _ in range(300)}
    assert answers == {200}
    paths = (await service.client.get("/openapi.json")).json()["paths"]
    assert not [path for path, methods in paths.items() for method in methods.values() if "429" in method["responses"]]


@pytest.mark.rule("WHERE-X1", "CB-X1")
async def test_a_database_that_refuses_is_asked_once_for_each_request() -> None:
    """No second try hides its absence, and 25 failures in a row do not keep the next request from asking again."""
    asked = 0

    async def slam(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        writer.transport.abort()

    async with await asyncio.start_server(slam, "127.0.0.1", 0) as database:
        dsn = f"postgresql://u@127.0.0.1:{database.sockets[0].getsockname()[1]}/orders?sslmode=disable"
        unheard = {"ORDERS_PG__PGBOUNCER": "true"}  # no listener, which would ask on its own behalf
        async with service_running(settings_for(dsn, "http://127.0.0.1:1", unheard), "api") as service:
            for number in range(1, 26):
                assert (await service.client.post("/orders", json=ORDER)).status_code == 503
                assert asked == number


@pytest.mark.rule("WHERE-X1", "CB-X1")
def test_nothing_around_the_database_knows_policies() -> None:
    """The database, the stores, the tasks and the order itself import neither policies nor what these are made of."""
    uses = {name: set(imported(path)) for name, path in modules().items()}
    guarded = {name: names for name, names in uses.items() if name.startswith(UNPROTECTED) and name != PORTS}
    assert len(guarded) > 15
    assert {name for name, names in guarded.items() if any(used.startswith(PROTECTION) for used in names)} == set()
    assert any(used.startswith(PROTECTION) for used in uses["systems/exchange.py"])
