"""Several processes of the service over one database: how they share the work, and whether they all find room."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from app import wiring
from app.db import Database, migrate, open_database
from app.main import create_server
from app.room import look_for_room
from app.settings import load_settings
from tests.faults.postgres import OwnPostgres, own_postgres
from tests.service import Sandbox, service_running, settings_for

ALL_BUT_PAYMENTS = {"ORDERS_TASKS__PAYMENT_TASK__ENABLED": "false"}
ONLY_PAYMENTS = {"ORDERS_TASKS__DEFAULT__ENABLED": "false", "ORDERS_TASKS__PAYMENT_TASK__ENABLED": "true"}

SMALL: dict[str, str] = {
    f"ORDERS_CLIENT__{name}__MAX_CONCURRENT": "1" for name in ("INSURANCE", "SBER", "RECEIPT", "ODNAKASSA", "ORDERBOOK")
}
"""Systems with pools that a small database pool allows for."""


@pytest.fixture
def server() -> Iterator[OwnPostgres]:
    """A server on which nobody else counts."""
    with own_postgres() as server:
        yield server


async def test_a_worker_leaves_tables_to_others(pg_dsn: str, database: Database, sandbox: Sandbox) -> None:
    """Without anybody for payments an order waits before them; a worker for nothing else brings it past them."""
    async with service_running(settings_for(pg_dsn, sandbox.url, ALL_BUT_PAYMENTS)) as service:
        order_id = await service.place()
        await service.reach([order_id], "CONFIRMED")
        await asyncio.sleep(0.5)
        assert await sandbox.calls("sber") == 0
        async with service_running(settings_for(pg_dsn, sandbox.url, ONLY_PAYMENTS), "worker") as payments:
            await service.reach([order_id], "COMPLETED")
            loops = [poller.claiming for poller in payments.wiring.pollers.values() if poller.claiming.started]
            assert [loop.name for loop in loops] == ["payment_task claim"]


def test_a_process_stays_one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What platforms set to make uvicorn start several does not reach it: replicas are what scales."""
    monkeypatch.setenv("WEB_CONCURRENCY", "four")
    assert create_server(load_settings({}), "all", "127.0.0.1", 0).config.workers == 1


@pytest.mark.slow
async def test_all_processes_are_counted_with_their_pools(server: OwnPostgres) -> None:
    """Each has its pool and the connection it listens on; who else is connected counts as he is."""
    async with AsyncExitStack() as stack:
        for number, pool in enumerate((60, 20)):
            pg = load_settings({"ORDERS_PG__DSN": server.dsn, "ORDERS_PG__POOL__MAX": str(pool)} | SMALL).pg
            database = await stack.enter_async_context(open_database(pg, application_name=f"orders-{number}"))
            listener = await database.connect_listener()
            stack.callback(listener.terminate)
        stranger = await stack.enter_async_context(open_database(pg, application_name="reports"))
        async with stranger.engine.connect() as conn:
            assert await look_for_room(conn) == (297, 2, 61 + 21, 1)


@pytest.mark.slow
async def test_too_little_room_is_warned_of_once(
    server: OwnPostgres, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One process has room; when another starts they have not, and each says so once, with the numbers."""
    monkeypatch.setattr(wiring, "FIGURES_INTERVAL", 0.1)
    settings = settings_for(server.dsn, sandbox.url, {"ORDERS_PG__POOL__MAX": "150"})
    async with open_database(settings.pg, application_name="orders-migrate") as database:
        await migrate(database)
    with caplog.at_level(logging.WARNING):
        async with service_running(settings):
            await asyncio.sleep(1)
            assert warnings(caplog) == []
            async with service_running(settings, "worker"):
                await asyncio.sleep(1.5)
    assert len(warnings(caplog)) == 2
    first = str(warnings(caplog)[0]["problem"])
    assert first.startswith(
        "2 processes may open 302, others have 0, PostgreSQL allows 297: raise max_connections by 5"
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    said = [record.msg for record in caplog.records if isinstance(record.msg, dict)]
    return [line for line in said if line["event"] == "too many connections may be opened"]
