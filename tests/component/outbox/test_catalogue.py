"""The page about events: what it promises is what the code says and what a running service sends."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from jsonschema import ValidationError

from app.audit import By
from app.db import Database
from app.orders.intervene import cancel_order, retry_step, step_of
from app.orders.order import MOVES
from tests.component.outbox.cloudevents import check
from tests.component.outbox.events import Script, ended, fill, relaying, rows, run, until
from tests.component.outbox.receiver import SECRET, environ, is_signed, ok, told
from tests.component.systems.hostile import Peer, serve
from tests.service import Sandbox, Service, sandbox_running, service_running, settings_for

PAGE = (Path(__file__).resolve().parents[3] / "docs/events.md").read_text()


class Line(NamedTuple):
    """A line of the catalogue: from which status to which, and the fields besides these two."""

    pairs: set[tuple[str | None, str]]
    fields: set[str]


def catalogue() -> dict[str, Line]:
    lines = {}
    for event_type, _, statuses, fields in re.findall(r"^\| `(order\.\w+)` \|(.*)\|(.*)\|(.*)\|$", PAGE, re.MULTILINE):
        pairs = {(before or None, after) for before, after in re.findall(r"(?:`(\w+)` )?→ `(\w+)`", statuses)}
        lines[event_type] = Line(pairs, set(re.findall(r"`(\w+)`", fields)))
    return lines


CATALOGUE = catalogue()


def test_the_catalogue_lists_what_moves_record() -> None:
    """Every event of the state machine stands on the page, with every way into it, and no other does."""
    recorded: dict[str, set[tuple[str | None, str]]] = {"order.accepted": {(None, "ACCEPTED")}}
    for move in MOVES.values():
        recorded.setdefault(move.event, set()).update((start.value, move.ends.value) for start in move.starts)
    assert {event_type: line.pairs for event_type, line in CATALOGUE.items()} == recorded


def test_the_example_is_a_cloudevent_of_the_catalogue() -> None:
    """The page's own example passes the check that real events have to pass."""
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    check_against_catalogue(json.loads(example))


def check_against_catalogue(event: dict[str, Any]) -> None:
    check(event)
    line, data = CATALOGUE[event["type"]], event["data"]
    assert (data["previous"], data["status"]) in line.pairs
    assert set(data) == {"previous", "status"} | line.fields


@pytest.fixture
async def receiver() -> AsyncIterator[Peer]:
    async with serve(ok) as peer:
        yield peer


async def test_a_running_service_sends_what_the_catalogue_says(pg_dsn: str, receiver: Peer) -> None:
    """Orders that end in every way send each type of event, signed, complete and in sequence."""
    url = f"{receiver.url}/hook"
    async with sandbox_running() as sandbox:
        quick = {"ORDERS_TASKS__DEFAULT__BACKOFF_CAP": "1", "ORDERS_TASKS__DEFAULT__JITTER": "0"}
        async with service_running(settings_for(pg_dsn, sandbox.url, {**environ(url), **quick})) as service:
            orders = await every_ending(service, sandbox)
            await until(lambda: ended(service.wiring.database))
            stored = {str(row.event_id): row for row in await rows(service.wiring.database)}
    events = [told(request) for request in receiver.received]
    assert all(is_signed(request, SECRET) for request in receiver.received)
    assert {event["id"] for event in events} == set(stored)
    for event in events:
        check_against_catalogue(event)
    assert {event["type"] for event in events} == set(CATALOGUE)
    for order_id in orders:
        own = [int(event["sequence"]) for event in events if event["subject"] == str(order_id)]
        assert own == list(range(1, len(own) + 1))


async def every_ending(service: Service, sandbox: Sandbox) -> list[int]:
    """Bring an order to each of its ends, one of them by way of a failed step."""
    database, queues = service.wiring.database, service.wiring.queues
    await sandbox.set("insurance", outcome="REJECTED")
    await service.reach([rejected := await service.place()], "REJECTED")
    await sandbox.set("insurance", polls_before_final=1000)
    cancelled = await service.place()
    await cancel_order(database.engine, queues, cancelled)
    await sandbox.set("insurance", outcome="CONFIRMED", polls_before_final=0)
    await sandbox.set("sber", outcome="DECLINED")
    await service.reach([declined := await service.place()], "PAYMENT_DECLINED")
    await sandbox.set("sber", outcome="PAID")
    await sandbox.set("receipt", outcome="FAILED")
    await service.reach([failed := await service.place()], "RECEIPT_FAILED")
    await sandbox.set("receipt", outcome="ISSUED")
    step = step_of(service.wiring.steps, "receipt_creation_task")
    assert step is not None
    (task,) = await run(database, "SELECT task_id FROM receipt_creation_task WHERE order_id = :id", id=failed)
    await retry_step(database.engine, queues, step, task.task_id, By("operator"))
    await service.reach([failed], "COMPLETED")
    return [rejected, cancelled, declined, failed]


async def test_the_page_tells_how_a_parked_event_is_sent_again(database: Database) -> None:
    """The statement that the page gives to an operator publishes the order's parked event, and touches no other."""
    (statement,) = re.findall(r"```sql\n(.*?);\n```", PAGE, re.DOTALL)
    first, second = await fill(database, 2, 1, 2)
    await run(database, "UPDATE outbox_event SET status = 'PARKED', attempts = 20 WHERE sequence = 1")
    await run(database, statement.replace("42", str(first)))
    sink = Script()
    async with relaying(database, sink):
        async with asyncio.timeout(5):
            while len(sink.taken) < 3:
                await asyncio.sleep(0.02)
    assert sink.sequences(first) == [1, 2]
    assert sink.sequences(second) == [2]


def test_the_check_of_the_catalogue_bites() -> None:
    """An event with a field too many, or a status that its type does not lead to, does not pass."""
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    event = json.loads(example)
    for data in ({**event["data"], "more": 1}, {**event["data"], "status": "PAID"}):
        with pytest.raises(AssertionError):
            check_against_catalogue({**event, "data": data})
    with pytest.raises(ValidationError):
        check_against_catalogue({**event, "id": 7})
