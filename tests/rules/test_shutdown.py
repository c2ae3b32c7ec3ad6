"""SIGTERM, as an orchestrator sends it to a real process, and the order in which the service closes."""

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest
from prometheus_client import REGISTRY
from sqlalchemy import text

from app.db import Database
from app.observability import metrics
from app.settings import load_settings
from tests.faults.proxy import proxy_to_postgres
from tests.processes import SYSTEMS, Process, Processes, processes, wait_until
from tests.service import ORDER, Sandbox, service_running, settings_for

TABLES = ("order_confirmation_task", "payment_task", "receipt_creation_task", "booking_task", "orderbook_task")
ORDER_BODY = json.dumps(ORDER).encode()

NOTE_CLAIMS = """
CREATE TABLE claim_seen (at timestamptz);
CREATE FUNCTION note_claim() RETURNS trigger LANGUAGE plpgsql AS
  $$ BEGIN INSERT INTO claim_seen VALUES (clock_timestamp()); RETURN NEW; END $$;
"""


CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity WHERE application_name = 'orders-all' AND datname = current_database()"""


@contextmanager
def half_sent_order(process: Process) -> Iterator[socket.socket]:
    """A request in flight for as long as the test wants: the last byte of its body is still to come."""
    host, port = process.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        head = "POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        length = f"Content-Length: {len(ORDER_BODY)}\r\n\r\n"
        connection.sendall((head + length).encode() + ORDER_BODY[:-1])
        yield connection


def get(process: Process, path: str) -> httpx.Response:
    return httpx.get(process.url + path, timeout=5, trust_env=False)


def refuses_connections(process: Process) -> bool:
    try:
        get(process, "/health/live")
    except httpx.ConnectError:
        return True
    except httpx.RemoteProtocolError:  # it came while the listener was being closed
        return False
    return False


def logged(process: Process) -> list[dict[str, Any]]:
    return [json.loads(line) for line in process.log.read_text().splitlines() if line.startswith("{")]


def place(process: Process, count: int) -> list[int]:
    with httpx.Client(base_url=process.url, trust_env=False) as client:
        return [int(client.post("/orders", json=ORDER).json()["orderId"]) for _ in range(count)]


def turn(sandbox: Process, system: str, **knobs: Any) -> None:
    httpx.put(f"{sandbox.url}/{system}/_control", json=knobs, trust_env=False).raise_for_status()


def calls(sandbox: Process, system: str) -> int:
    control = httpx.get(f"{sandbox.url}/{system}/_control", trust_env=False).json()
    return sum(count for call, count in control["counters"]["calls"].items() if call != "GET /health")


def under_way(service: Process, system: str) -> int:
    seen = httpx.get(f"{service.url}/ops/systems", trust_env=False).json()
    return int(seen["systems"][system]["bulkhead"]["inUse"])


def operations(sandbox: Process, system: str) -> dict[str, int]:
    return dict(httpx.get(f"{sandbox.url}/{system}/_control/orders", trust_env=False).json())


@pytest.fixture
def run(pg_dsn: str, tmp_path: Path) -> Iterator[Processes]:
    with processes(pg_dsn, tmp_path) as run:
        run.environ |= {"ORDERS_LOG__FORMAT": "json"}
        yield run


@pytest.mark.slow
@pytest.mark.rule("SHUT-CFG", "SHUT-HTTP", "SHUT-OBS")
def test_readiness_first_then_the_listener_then_the_rest(run: Processes) -> None:
    """At the signal readiness turns red while requests are served; then new ones are refused and open ones end."""
    run.environ |= {"ORDERS_SHUTDOWN__LEAD": "3"}
    run.sandbox()
    service = run.serve()
    with half_sent_order(service) as in_flight:
        service.popen.terminate()
        wait_until(lambda: get(service, "/health/ready").status_code == 503, 3, "readiness is red")
        assert get(service, "/health/ready").json()["problems"] == ["the service is stopping"]
        assert get(service, "/health/live").status_code == 200
        assert place(service, 1)
        wait_until(lambda: refuses_connections(service), 6, "the listener is closed")
        assert service.popen.poll() is None
        in_flight.sendall(ORDER_BODY[-1:])
        answer = in_flight.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 202 ")
    assert b"connection: close" in answer.lower()
    assert service.popen.wait(20) == 0
    told = [line for line in logged(service) if line["event"] in ("stopping", "pollers drained", "stopped")]
    assert [(line["event"], line["level"]) for line in told] == [
        ("stopping", "info"),
        ("pollers drained", "info"),
        ("stopped", "info"),
    ]
    assert told[0]["signal"] == "SIGTERM"
    assert 3 <= told[2]["seconds"] < 30


@pytest.mark.slow
@pytest.mark.rule("SHUT-SCHED", "SHUT-IDEM", "SHUT-DB", "ASYNC-1")
async def test_a_backlog_is_left_as_if_nobody_had_touched_it(run: Processes, pg_dsn: str) -> None:
    """No claim follows the signal, calls cut short cost no attempt, and the next process does everything just once."""
    run.environ |= {
        "ORDERS_SHUTDOWN__LEAD": "0.5",
        "ORDERS_SHUTDOWN__POLLER": "1",
        "ORDERS_CLIENT__INSURANCE__READ_TIMEOUT": "20",
        "ORDERS_CLIENT__INSURANCE__TOTAL_TIMEOUT": "25",
    }
    database = await asyncpg.connect(pg_dsn)
    await database.execute(NOTE_CLAIMS)
    for table in TABLES:
        await database.execute(
            f"CREATE TRIGGER note AFTER UPDATE ON {table} FOR EACH ROW "
            "WHEN (NEW.retry_count > OLD.retry_count) EXECUTE FUNCTION note_claim()"
        )
    sandbox = run.sandbox()
    turn(sandbox, "receipt", mode="slow", latency_ms=400)
    service = run.serve()
    ids = place(service, 30)
    wait_until(lambda: calls(sandbox, "receipt") >= 4, 15, "receipts are under way")
    turn(sandbox, "insurance", mode="hang")
    ids += place(service, 20)
    wait_until(lambda: under_way(service, "insurance") == 8, 20, "all slots of the insurance hang")
    service.popen.terminate()
    signalled = await database.fetchval("SELECT clock_timestamp()")
    assert await asyncio.to_thread(service.popen.wait, 20) == 0

    last = await database.fetchval("SELECT max(at) FROM claim_seen")
    assert (last - signalled).total_seconds() <= 0.25
    assert await database.fetchval(CONNECTIONS) == 0
    held = await database.fetch(
        "SELECT retry_count, next_attempt_at <= now() AS due FROM order_confirmation_task"
        " WHERE last_error ^@ 'stopping'"
    )
    assert [(row["retry_count"], row["due"]) for row in held] == [(0, True)] * 8
    for table in TABLES:
        leased = f"SELECT count(*) FROM {table} WHERE status IN ('PENDING', 'IN_PROGRESS') AND next_attempt_at > now()"
        assert await database.fetchval(leased) == 0, table

    turn(sandbox, "insurance", mode="ok")
    turn(sandbox, "receipt", mode="ok")
    run.serve()
    async with asyncio.timeout(30):
        while await database.fetchval("SELECT count(*) FROM orders WHERE status = 'COMPLETED'") < len(ids):
            await asyncio.sleep(0.1)
    for system in SYSTEMS:
        assert operations(sandbox, system) == {str(order_id): 1 for order_id in ids}, system
    assert await database.fetchval("SELECT count(*) FROM outbox_event WHERE type = 'order.completed'") == len(ids)
    await database.close()


@pytest.mark.slow
@pytest.mark.rule("SHUT-CFG", "TO-X1")
async def test_whatever_hangs_the_process_ends_in_time(run: Processes, pg_dsn: str) -> None:
    """With a database that went silent and a request that never arrives it ends by itself, within the grace period."""
    async with proxy_to_postgres(pg_dsn) as (proxy, dsn):
        run.environ |= {
            "ORDERS_PG__DSN": dsn,
            "ORDERS_SHUTDOWN__LEAD": "0.2",
            "ORDERS_SHUTDOWN__DRAIN": "1",
            "ORDERS_SHUTDOWN__POLLER": "1",
            "ORDERS_SHUTDOWN__CLOSE": "1",
        }
        sandbox = await asyncio.to_thread(run.sandbox)
        turn(sandbox, "insurance", mode="slow", latency_ms=500)
        service = await asyncio.to_thread(run.serve)
        await asyncio.to_thread(place, service, 20)
        with half_sent_order(service):
            proxy.hold()
            service.popen.terminate()
            grace_period = load_settings({}).shutdown.grace_period
            assert await asyncio.to_thread(service.popen.wait, grace_period) == 0


@pytest.mark.rule("SHUT-DB", "SHUT-SCHED")
async def test_the_pool_is_closed_after_all_that_needs_it(pg_dsn: str, database: Database, sandbox: Sandbox) -> None:
    """Pollers give back what they hold while the database still works, and no connection outlives the service."""
    await sandbox.set("insurance", mode="hang")
    settings = settings_for(pg_dsn, sandbox.url)
    async with service_running(settings) as service:
        for _ in range(3):
            await service.place()
        async with asyncio.timeout(10):
            while await sandbox.calls("insurance") < 3:
                await asyncio.sleep(0.02)
    async with database.engine.connect() as conn:
        rows = await conn.execute(text("SELECT last_error, retry_count FROM order_confirmation_task"))
        assert [tuple(row) for row in rows] == [("stopping: the attempt was cut short", 0)] * 3
        assert await conn.scalar(text(CONNECTIONS)) == 0


@pytest.mark.rule("SHUT-OBS")
async def test_a_shutdown_is_measured(pg_dsn: str, sandbox: Sandbox) -> None:
    """How long the pollers and the whole shutdown took is a metric, in seconds."""
    metrics.shutdown.clear()
    async with service_running(settings_for(pg_dsn, sandbox.url)):
        pass
    pollers, total = (REGISTRY.get_sample_value("shutdown_seconds", {"phase": p}) for p in ("pollers", "total"))
    assert pollers is not None
    assert total is not None
    assert 0 < pollers <= total
