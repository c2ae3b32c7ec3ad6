"""What tests ask for: a fresh migrated database on the one server of the run, the stand-ins, the whole service."""

import asyncio
import gc
import os
import shutil
import tempfile
import uuid
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import docker  # type: ignore[import-untyped]
import pytest
from testcontainers.community.postgres import PostgresContainer
from testcontainers.core.config import testcontainers_config

from app.db import Database, migrate, open_database
from app.embedded import EmbeddedPostgres
from app.observability.logs import route_structlog
from app.settings import PgSettings, load_settings
from tests import scenarios
from tests.service import Sandbox, Service, sandbox_running, service_running, settings_for

IMAGE = "postgres:18"
DSN = "ORDERS_TEST_DSN"

UNSAFE_BUT_FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""The data need not survive a crash of the machine."""

Server = Callable[[], AbstractContextManager[str]]
"""Opens a server for the run; yields the DSN of a user that may create databases."""

CHOSEN = pytest.StashKey[tuple[str, Server]]()
SLOW = {"faults", "pgbouncer"}
"""Folders whose tests start servers and break them."""

OPENED = pytest.StashKey[ExitStack]()


def choose_server() -> tuple[str, Server]:
    """Choose the server that ORDERS_TEST_DSN names, else a container, else the wheel's; returns its name as well."""
    if dsn := os.environ.get(DSN):
        return DSN, lambda: nullcontext(dsn)
    if image_available():
        return f"testcontainers, {IMAGE}", container
    return "embedded, from the wheel", wheel


def image_available() -> bool:
    """Whether a Docker engine answers and has the image, or can get it."""
    try:
        with closing(docker.from_env(timeout=3)) as engine:
            try:
                engine.images.get(IMAGE)
            except docker.errors.ImageNotFound:
                engine.images.get_registry_data(IMAGE)
    except (docker.errors.DockerException, OSError):
        return False
    return True


@contextmanager
def container() -> Iterator[str]:
    testcontainers_config.ryuk_disabled = True  # its reaper needs another image; this container is stopped below
    flags = " ".join(f"-c {name}={value}" for name, value in {**UNSAFE_BUT_FAST, "max_connections": "300"}.items())
    server = PostgresContainer(IMAGE, driver=None).with_command(f"postgres {flags}").with_tmpfs_mount("/memory")
    server = server.with_envs(PGDATA="/memory/postgres", POSTGRES_HOST_AUTH_METHOD="trust")
    with server as postgres:
        yield postgres.get_connection_url()


@contextmanager
def wheel() -> Iterator[str]:
    directory = Path(tempfile.mkdtemp(prefix="orders-test-"))
    server = EmbeddedPostgres(directory / "postgres")
    try:
        dsn = server.start()
        for name, value in UNSAFE_BUT_FAST.items():
            execute(dsn, f"ALTER SYSTEM SET {name} = {value}")
        execute(dsn, "SELECT pg_reload_conf()")
        yield dsn
    finally:
        server.stop()
        shutil.rmtree(directory)


def pytest_configure(config: pytest.Config) -> None:
    """Route our log lines to pytest; with several workers the controller opens the one server that all of them use."""
    route_structlog()
    config.pluginmanager.register(scenarios)
    with warnings.catch_warnings(action="ignore", category=ResourceWarning):
        config.stash[CHOSEN] = choose_server()
        gc.collect()  # docker's client forgets its socket when nobody answers
    config.stash[OPENED] = ExitStack()
    if config.getoption("numprocesses", None) and not hasattr(config, "workerinput"):
        _, server = config.stash[CHOSEN]
        os.environ[DSN] = config.stash[OPENED].enter_context(server())


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let `-m rules` select what proves a rule, and `-k ISO_1` what proves ISO-1."""
    codes = [code for mark in item.iter_markers("rule") for code in mark.args]
    if codes:
        item.add_marker("rules")
        item.extra_keyword_matches.update(code.replace("-", "_") for code in codes)
    if item.path.parent.name in SLOW and item.path.name != "test_page.py":
        item.add_marker("slow")


def pytest_report_header(config: pytest.Config) -> str:
    return f"postgresql: {config.stash[CHOSEN][0]}"


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[OPENED].close()


@pytest.fixture(scope="session")
def server_dsn(pytestconfig: pytest.Config) -> Iterator[str]:
    """The DSN of a PostgreSQL where databases may be made and dropped."""
    _, server = pytestconfig.stash[CHOSEN]
    with server() as dsn:
        yield dsn


@pytest.fixture(scope="session")
def databases(server_dsn: str) -> Iterator["Databases"]:
    with ThreadPoolExecutor(max_workers=1) as thread, asyncio.Runner() as runner:
        databases = Databases(server_dsn, thread, runner)
        yield databases
        databases.close()


@pytest.fixture(scope="session")
def migrated(server_dsn: str) -> Iterator[str]:
    """The name of a migrated database that nobody connects to: a template."""

    async def fill(dsn: str) -> None:
        async with open_database(pg_settings(dsn), application_name="template") as database:
            await migrate(database)

    with new_database(server_dsn) as dsn:
        run(fill(dsn))
        yield urlsplit(dsn).path.removeprefix("/")


@pytest.fixture
def empty_dsn(databases: "Databases") -> Iterator[str]:
    """The DSN of an empty database of the test's own."""
    with databases.new() as dsn:
        yield dsn


@pytest.fixture
def pg_dsn(databases: "Databases", migrated: str) -> Iterator[str]:
    """The DSN of a migrated, otherwise empty database of the test's own."""
    with databases.new(template=migrated) as dsn:
        yield dsn


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    """The stand-ins of all five systems."""
    async with sandbox_running() as sandbox:
        yield sandbox


@pytest.fixture
async def service(pg_dsn: str, sandbox: Sandbox) -> AsyncIterator[Service]:
    """The whole service on a database of the test's own, beside the stand-ins."""
    async with service_running(settings_for(pg_dsn, sandbox.url)) as service:
        yield service


@pytest.fixture
async def database(pg_dsn: str) -> AsyncIterator[Database]:
    """A migrated, otherwise empty database of the test's own, opened with the default settings."""
    async with open_database(pg_settings(pg_dsn), application_name="test") as database:
        yield database


class Databases:
    """Makes databases over one connection, and drops them while the test's other resources are closed."""

    def __init__(self, server_dsn: str, thread: ThreadPoolExecutor, runner: asyncio.Runner) -> None:
        self._server_dsn, self._thread, self._runner = server_dsn, thread, runner
        self._connection = self._begin(asyncpg.connect(server_dsn)).result()
        self._drops: list[Future[Any]] = []

    @contextmanager
    def new(self, template: str = "template1") -> Iterator[str]:
        name = f"test_{uuid.uuid4().hex}"
        self._begin(self._connection.execute(creation(name, template))).result()
        try:
            yield urlsplit(self._server_dsn)._replace(path=f"/{name}").geturl()
        finally:
            self._drops.append(self._begin(self._connection.execute(f"DROP DATABASE {name} WITH (FORCE)")))

    def close(self) -> None:
        for drop in self._drops:
            drop.result()
        self._begin(self._connection.close()).result()

    def _begin(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return self._thread.submit(self._runner.run, work)


@contextmanager
def new_database(server_dsn: str, template: str = "template1") -> Iterator[str]:
    name = f"test_{uuid.uuid4().hex}"
    execute(server_dsn, creation(name, template))
    try:
        yield urlsplit(server_dsn)._replace(path=f"/{name}").geturl()
    finally:
        execute(server_dsn, f"DROP DATABASE {name} WITH (FORCE)")


def creation(name: str, template: str) -> str:
    return f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY"


def pg_settings(dsn: str) -> PgSettings:
    return load_settings({"ORDERS_PG__DSN": dsn}).pg


def execute(dsn: str, statement: str) -> None:
    """Execute one statement, in whatever context a fixture is."""

    async def connect_and_execute() -> None:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(statement)
        finally:
            await connection.close()

    run(connect_and_execute())


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in a thread with an event loop of its own: the caller's may be running or may not exist."""
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(asyncio.run, work).result()
