"""What the service writes to standard error, as whoever collects it sees it."""

import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.processes import ROOT, processes, wait_until
from tests.service import ORDER

SECRETS = {
    "ORDERS_EVENTS__WEBHOOK__SECRETS": '["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYqrTwjU"]',
    "ORDERS_AUTH__MODE": "api_key",
}
KEY, DIGEST = "k3y-of-the-shop", "9b2b2dfd7e0c2f2c1f4f0d7b2d5b2a6a0e8f3c4d5e6f708192a3b4c5d6e7f809"


def written(script: str, *, style: str = "json", level: str = "INFO", **options: Any) -> list[str]:
    """The lines that a program of ours leaves behind."""
    program = f"from app.observability.logs import configure_logs\nconfigure_logs({level!r}, {style!r})\n{script}"
    done: subprocess.CompletedProcess[str] = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        check=True,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        timeout=60,
        **options,
    )
    return done.stderr.splitlines()


def test_libraries_speak_through_the_same_pipeline() -> None:
    """Warnings, asyncio, uvicorn, aiohttp and SQLAlchemy give JSON lines with level, logger and time, like ours.

    What httpx has to say of every call that succeeds is left out.
    """
    lines = written(
        """
import logging, warnings
import structlog
structlog.get_logger("app.ours").info("ours", order_id=7)
for name in ("asyncio", "uvicorn.error", "aiohttp.server", "sqlalchemy.pool", "alembic"):
    logging.getLogger(name).warning("%s speaks", name)
logging.getLogger("httpx").info("HTTP Request: GET http://127.0.0.1 200 OK")
warnings.warn("old", DeprecationWarning, stacklevel=1)
try: 1 / 0
except ZeroDivisionError: logging.getLogger("uvicorn.error").exception("failed")
""",
        env={**os.environ, "PYTHONWARNINGS": "default"},
    )
    told = [json.loads(line) for line in lines]
    assert [line["logger"] for line in told] == [
        *("app.ours", "asyncio", "uvicorn.error", "aiohttp.server", "sqlalchemy.pool", "alembic", "py.warnings"),
        "uvicorn.error",
    ]
    assert all({"event", "level", "timestamp"} <= line.keys() for line in told)
    assert told[0]["order_id"] == 7
    assert "DeprecationWarning: old" in told[-2]["event"]
    assert told[-1]["exception"][0]["exc_type"] == "ZeroDivisionError"


def test_a_terminal_gets_columns() -> None:
    """The console format is for people: no JSON, and a traceback as Python prints it."""
    lines = written("import structlog\nstructlog.get_logger('app').info('ours', order_id=7)", style="console")
    assert "ours" in lines[0]
    assert "order_id" in lines[0]
    assert not lines[0].startswith("{")


def test_a_terminal_obeys_no_foreign_text() -> None:
    """In the console format neither an event nor a value nor an error's text moves a cursor or feigns a line."""
    script = r"""
import structlog
log = structlog.get_logger("app")
log.info("hostile \x9b2J \u202e", value="\x1b]0;title\x07 \n feigned")
try: raise ValueError("\x1b[31m \x9b")
except ValueError: log.exception("failed")
"""
    lines = written(script, style="console", env={**os.environ, "NO_COLOR": "1"})
    plain = re.sub(r"\x1b\[[0-9;]*m", "", lines[0])
    assert "feigned" in plain
    assert plain.isprintable()
    assert all(line.isprintable() for line in lines[2:])
    assert "ValueError" in lines[-1]


def test_what_cannot_be_shown_breaks_nothing() -> None:
    """Lone surrogates, control characters, objects whose text fails and wrong arguments are lines like others."""
    lines = written(r"""
import logging, structlog
class Broken:
    def __repr__(self): raise RuntimeError("no text")
log = structlog.get_logger("app")
log.info("odd", value="\ud800 \x00 \n {\"level\": \"error\"}")
log.info("broken", value=Broken())
logging.getLogger("library").warning("%d", "no number")
log.info("last")
""")
    told = [json.loads(line) for line in lines]
    assert len(told) == 4
    assert told[0]["event"] == "odd"
    assert told[-1]["event"] == "last"


def test_nobody_waits_for_a_reader_that_does_not_read() -> None:
    """A pipe that is full drops lines and counts them; logging goes on at once, and the process ends by itself."""
    script = """
import time
import structlog
from app.observability import metrics
from app.observability.logs import configure_logs
configure_logs("INFO", "json")
log = structlog.get_logger("app")
slowest = 0.0
for number in range(30_000):
    began = time.monotonic()
    log.info("filler", number=number)
    slowest = max(slowest, time.monotonic() - began)
print(slowest < 2, metrics.log_lines_dropped._value.get() > 10_000)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        assert process.stdout.readline() == "True True\n"
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


@pytest.mark.parametrize("stderr", ["closed", "broken", "missing"])
def test_a_lost_standard_error_ends_nothing(stderr: str) -> None:
    """Whether standard error was closed, its reader has gone, or there never was one: the program goes on."""
    script = """
import sys, time
import structlog
from app.observability.logs import configure_logs
configure_logs("INFO", "auto")
if sys.argv[1] == "closed":
    import os
    os.close(2)
if sys.argv[1] == "missing":
    sys.stderr = None
log = structlog.get_logger("app")
for number in range(100):
    log.info("into the void", number=number)
time.sleep(0.2)
print("alive")
"""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-c", script, stderr],
            cwd=ROOT,
            check=False,
            stdout=subprocess.PIPE,
            stderr=writing if stderr == "broken" else subprocess.DEVNULL,
            text=True,
            timeout=30,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stdout) == (0, "alive\n")


@pytest.mark.slow
def test_lines_name_what_they_are_about_and_hold_no_secret(pg_dsn: str, tmp_path: Path) -> None:
    """An order of hostile data leads through a failing system: ids are on the lines, data and secrets on none."""
    data = "D4TA-\u2028-of-the-customer"
    item = {"sku": data, "quantity": 1, "price": {"amount": "1.00", "currency": "RUB"}}
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    key = {"name": "shop", "sha256": digest, "scopes": ["orders:write", "orders:read", "ops"]}
    with processes(pg_dsn, tmp_path) as run:
        run.environ |= {**SECRETS, "ORDERS_AUTH__KEYS": json.dumps([key]), "ORDERS_LOG__LEVEL": "DEBUG"}
        run.environ |= {"ORDERS_LOG__FORMAT": "json", "ORDERS_SHUTDOWN__LEAD": "0"}
        run.environ |= {"ORDERS_CLIENT__INSURANCE__BREAKER__MINIMUM_CALLS": "2"}
        sandbox = run.sandbox()
        httpx.put(f"{sandbox.url}/insurance/_control", json={"mode": "garbage"}, trust_env=False).raise_for_status()
        service = run.serve()
        headers = {"authorization": f"Bearer {KEY}", "x-request-id": "r-1"}
        for order in ({**ORDER, "customerId": data, "items": [item]}, {"customerId": data, "nonsense": data}):
            httpx.post(f"{service.url}/orders", json=order, headers=headers, trust_env=False)
        httpx.get(f"{service.url}/orders", params={"customerId": data}, headers=headers, trust_env=False)
        httpx.get(f"{service.url}/orders", headers={"authorization": "Bearer D4TA"}, trust_env=False)

        def lines() -> list[dict[str, Any]]:
            return [json.loads(line) for line in service.log.read_text(encoding="utf-8").split("\n") if line]

        wait_until(lambda: any(line["event"] == "breaker changed" for line in lines()), 30, "the breaker opens")
        service.terminate()
        everything, told = service.log.read_text(encoding="utf-8"), lines()
    for private in (data, "D4TA", KEY, digest, "MfKQ9r8GKYqrTwjU", "password"):
        assert private not in everything
    (changed,) = [line for line in told if line["event"] == "breaker changed"]
    assert changed["level"] == "warning"
    assert {"system", "table", "task_id", "order_id", "attempt"} <= changed.keys()
    assert "r-1" in {line.get("request_id") for line in told}


@pytest.mark.slow
def test_lines_of_a_traced_request_carry_its_trace(pg_dsn: str, tmp_path: Path) -> None:
    """With telemetry on, the lines of a request and of the attempts made for it name one trace."""
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    with processes(pg_dsn, tmp_path) as run:
        run.environ |= {"ORDERS_LOG__FORMAT": "json", "ORDERS_TELEMETRY__OTLP_ENDPOINT": "http://127.0.0.1:1"}
        run.environ |= {"ORDERS_TELEMETRY__FLUSH": "0.1", "ORDERS_SHUTDOWN__LEAD": "0"}
        run.sandbox()
        service = run.serve()
        headers = {"traceparent": f"00-{trace_id}-b7ad6b7169203331-01"}
        httpx.post(f"{service.url}/orders", json=ORDER, headers=headers, trust_env=False).raise_for_status()

        def of_trace() -> set[str]:
            told = [json.loads(line) for line in service.log.read_text().splitlines()]
            return {line["event"] for line in told if line.get("trace_id") == trace_id}

        wait_until(lambda: {"request", "event"} <= of_trace(), 30, "the request's and the events' lines are there")
        service.terminate()
