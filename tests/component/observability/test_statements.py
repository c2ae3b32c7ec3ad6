"""What statements leave behind in traces and errors: what they do, never what they hold."""

import traceback

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from app.db import open_database
from tests.conftest import pg_settings

SECRET = "S3CR3T"
INSERT = "INSERT INTO orders (customer_id, items, status) VALUES ('c-42', '[]', 'ACCEPTED')"
REFUSED = "INSERT INTO orders (customer_id, items, status) VALUES (:customer, '[]', 'ODD')"


NAMES = [
    ("SELECT 1 FROM orders", "SELECT orders"),
    ("SELECT 1", "SELECT"),
    ("UPDATE orders SET version = t.attempts FROM outbox_event AS t WHERE false", "UPDATE orders"),
    ("DELETE FROM booking_task WHERE false", "DELETE booking_task"),
    ("UPDATE booking_task AS task SET retry_count = 0 WHERE false", "UPDATE booking_task"),
    (f"WITH new AS ({INSERT} RETURNING 1) SELECT 1 FROM new", "INSERT orders"),
    (f"WITH given AS (SELECT 1 FROM outbox_event), new AS ({INSERT}) SELECT 1", "INSERT orders"),
    (f"WITH new AS ({INSERT}), old AS (DELETE FROM booking_task) SELECT 1", "INSERT orders, DELETE booking_task"),
]


async def test_a_statement_is_named_by_what_it_does(
    spans: InMemorySpanExporter, pg_dsn: str, subtests: pytest.Subtests
) -> None:
    """Under a span each statement has one, with its text in one line; without one it has none."""
    async with open_database(pg_settings(pg_dsn), application_name="test") as database:
        for statement, name in NAMES:
            spans.clear()
            with subtests.test(statement=statement):
                async with database.engine.connect() as conn:
                    await conn.execute(text(statement))
                    assert [span.name for span in spans.get_finished_spans()] == []
                    with trace.get_tracer("test").start_as_current_span("work"):
                        await conn.execute(text(statement))
                (span,) = [span for span in spans.get_finished_spans() if span.name != "work"]
                assert span.attributes is not None
                assert (span.name, span.attributes["db.query.text"]) == (name, statement)


async def test_a_refused_statement_shows_without_its_values(spans: InMemorySpanExporter, pg_dsn: str) -> None:
    """The span tells the kind of refusal; neither it nor the error's whole traceback quotes the row or the values."""
    async with open_database(pg_settings(pg_dsn), application_name="test") as database:
        with trace.get_tracer("test").start_as_current_span("work"), pytest.raises(IntegrityError) as refused:
            async with database.engine.begin() as conn:
                await conn.execute(text(REFUSED), {"customer": SECRET})
    (span,) = [span for span in spans.get_finished_spans() if span.name == "INSERT orders"]
    assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "CheckViolationError")
    assert SECRET not in span.to_json()
    assert "violates check constraint" in "".join(traceback.format_exception(refused.value))
    assert SECRET not in "".join(traceback.format_exception(refused.value))
