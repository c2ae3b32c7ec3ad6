"""Everything the demo needs, running in one process: sandbox, database, service."""

import asyncio
import logging
import os
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from app.db import Database, migrate, open_database
from app.demo.samples import KNOBS
from app.main import Server, create_server
from app.observability.logs import configure_logs, route_structlog
from app.occupied import hold, listen_nearby
from app.sandbox.server import running_sandbox
from app.settings import Settings, load_settings
from app.wiring import check_wiring

HOST, SANDBOX_PORT = "127.0.0.1", 8100


class DemoFailed(Exception):
    """The demo cannot go on; the message says why."""


@dataclass(frozen=True, slots=True)
class Stage:
    """What runs, and where; `serving` ends with the service, `taken` are ports that others had already."""

    url: str
    sandbox: str
    settings: Settings
    database: Database
    log: Path
    server: Server
    serving: asyncio.Task[None]
    taken: list[int]


@asynccontextmanager
async def open_stage(dsn: str | None, changed: Mapping[str, str] | None = None) -> AsyncIterator[Stage]:
    """Start everything and stop it in the reverse order; default ports that are taken give way to the next free ones.

    The orders are kept in the embedded PostgreSQL, or in the database that `dsn` names. `changed` are settings, as
    environment variables. Raises ConfigError, Occupied, EmbeddedPostgresError or DemoFailed.
    """
    async with AsyncExitStack() as stack:
        given = {**os.environ, **(changed or {}), **_overrides(dsn)}
        if dsn is None:
            stack.enter_context(hold(load_settings(given).pg.data_dir, alone=True))
        sandbox = await stack.enter_async_context(_sandbox())
        settings = load_settings({**given, **_systems(sandbox)})
        check_wiring(settings)
        log = _log_to_file(settings)
        database = await stack.enter_async_context(open_database(settings.pg, application_name="orders-demo"))
        if (unreachable := await database.ping()) is not None:
            raise DemoFailed(f"the database cannot be reached: {unreachable}")
        await migrate(database)
        listener = stack.enter_context(listen_nearby(HOST, settings.api.port))
        port = listener.getsockname()[1]
        server = create_server(settings, "all", HOST, port)
        serving = asyncio.create_task(_serve(server, listener, log), name="service")
        stack.push_async_callback(_stop, server, serving)
        url = f"http://{HOST}:{port}"
        taken = [
            wanted
            for wanted, got in ((settings.api.port, url), (SANDBOX_PORT, sandbox))
            if wanted and not got.endswith(f":{wanted}")
        ]
        yield Stage(url, sandbox, settings, database, log, server, serving, taken)


async def while_serving(stage: Stage, show: Coroutine[Any, Any, bool]) -> bool:
    """What `show` returns; False if the service ended before it."""
    showing = asyncio.create_task(show, name="show")
    try:
        await asyncio.wait({showing, stage.serving}, return_when=asyncio.FIRST_COMPLETED)
        if showing.done():
            return showing.result()
    finally:
        showing.cancel()
        await asyncio.wait({showing})
    stage.serving.result()
    return False


def _overrides(dsn: str | None) -> dict[str, str]:
    """What the demo needs whatever the environment says: its own database, and nobody to ask for a key."""
    return {
        "ORDERS_PG__DSN": dsn or "null",
        "ORDERS_PG__DIRECT_DSN": "null",
        "ORDERS_PG__PGBOUNCER": "false",
        "ORDERS_API__HOST": HOST,
        "ORDERS_API__DOCS": "true",
        "ORDERS_AUTH__MODE": "none",
        "ORDERS_AUTH__KEYS": "[]",
        "ORDERS_SHUTDOWN__LEAD": "0",
    }


def _systems(sandbox: str) -> dict[str, str]:
    return {f"ORDERS_CLIENT__{system.upper()}__BASE_URL": f"{sandbox}/{system}" for system in KNOBS}


@asynccontextmanager
async def _sandbox() -> AsyncIterator[str]:
    with listen_nearby(HOST, SANDBOX_PORT) as free:
        port = free.getsockname()[1]
    async with running_sandbox(HOST, port) as url:
        async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
            for system, knobs in KNOBS.items():
                (await http.put(f"/{system}/_control", json=knobs)).raise_for_status()
        yield url


def _log_to_file(settings: Settings) -> Path:
    """Keep the screen for the orders: logs go to a file beside the database, and named after it."""
    directory = settings.pg.data_dir
    path = directory.with_name(f"{directory.name}.demo.log")
    path.parent.mkdir(parents=True, exist_ok=True)
    configure_logs(settings.log.level, "json")
    route_structlog()
    root, file = logging.getLogger(), logging.FileHandler(path, "w", encoding="utf-8")
    file.setFormatter(root.handlers[0].formatter)
    root.handlers = [file]
    return path


async def _serve(server: Server, listener: socket.socket, log: Path) -> None:
    try:
        await server.serve([listener])
    except SystemExit:
        raise DemoFailed(f"the service could not start, {log} tells why") from None


async def _stop(server: Server, serving: asyncio.Task[None]) -> None:
    server.should_exit = True
    await asyncio.wait({serving})
