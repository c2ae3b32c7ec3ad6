"""An event's form on the wire."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from jsonschema import ValidationError

from app.db import Database
from app.orders.snapshot import dump_details
from app.outbox import cloudevent, store
from tests.component.outbox.cloudevents import check
from tests.component.outbox.test_webhook import EVENT
from tests.rows import insert_event, insert_orders

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def encoded(**changes: Any) -> dict[str, Any]:
    return dict(json.loads(cloudevent.encode(replace(EVENT, **changes), "/orders")))


def test_an_event_is_a_cloudevent() -> None:
    """Every attribute has its place, the required ones and those that order and trace the event."""
    event = encoded(traceparent=TRACE)
    check(event)
    assert event == {
        "specversion": "1.0",
        "id": EVENT.event_id,
        "source": "/orders",
        "type": "order.paid",
        "subject": "42",
        "time": "2026-11-02T12:00:00Z",
        "sequence": "0000000003",
        "traceparent": TRACE,
        "datacontenttype": "application/json",
        "data": {"status": "PAID", "reason": "оплачено"},
    }


def test_an_event_outside_a_trace_has_no_traceparent() -> None:
    """An attribute without a value is left out, as CloudEvents wants it."""
    check(encoded())
    assert "traceparent" not in encoded()


def test_the_time_is_utc() -> None:
    """Whatever the session's zone, the moment is told in UTC."""
    east = datetime(2026, 11, 2, 15, 0, 0, 123456, tzinfo=timezone(timedelta(hours=3)))
    assert encoded(occurred_at=east)["time"] == "2026-11-02T12:00:00.123456Z"


def test_sequences_sort_as_text() -> None:
    """A consumer that compares the texts gets the order of the numbers, up to the largest there can be."""
    numbers = [1, 2, 9, 10, 99, 100, 2**31 - 1]
    told = [encoded(sequence=n)["sequence"] for n in numbers]
    assert told == sorted(told)
    assert [int(text) for text in told] == numbers


@pytest.mark.parametrize(
    "broken",
    [{"id": ""}, {"specversion": "0.3"}, {"time": "yesterday"}, {"orderId": 1}, {"traceparent": "00-0-0-0"}, {"x": {}}],
)
def test_the_check_bites(broken: dict[str, Any]) -> None:
    """The check refuses what CloudEvents refuses."""
    with pytest.raises(ValidationError):
        check({**encoded(), **broken})


async def test_what_was_stored_is_what_is_told(database: Database) -> None:
    """Any text, an exact number and nested data come out of the table as they went in, at the table's time."""
    data = {"reason": 'Ё"\\\n\u2028😀', "exact": 2**53 + 1, "deep": [{"a": [None, True, {}]}]}
    async with database.engine.begin() as conn:
        (order_id,) = await insert_orders(conn, 1)
        await insert_event(conn, order_id, 1, "order.accepted", dump_details(data), TRACE)
    (event,) = (await store.claim(database.engine, batch=1, lease=30)).events
    told = json.loads(cloudevent.encode(event, "https://shop.example.com/orders"))
    check(told)
    assert (told["data"], told["subject"], told["traceparent"]) == (data, str(order_id), TRACE)
    assert abs(datetime.fromisoformat(told["time"]) - datetime.now(UTC)) < timedelta(minutes=1)
