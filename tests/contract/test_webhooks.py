"""The webhooks section of the document describes the events of docs/events.md as a running service sends them."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

from pydantic.alias_generators import to_camel

from app.api.webhooks import EVENT_TYPES
from tests.component.outbox.receiver import environ, ok, told
from tests.component.systems.hostile import serve
from tests.contract.published import DOCUMENT, complaints, resolve
from tests.service import Sandbox, service_running, settings_for

PAGE = (Path(__file__).resolve().parents[2] / "docs/events.md").read_text()
HOOKS = DOCUMENT["webhooks"]
ROW = re.compile(r"^\| `(order\.\w+)` \|.*\|(.*)\|(.*)\|$", re.MULTILINE)


def test_the_document_has_the_events_of_the_page() -> None:
    """Both name the same types, the same statuses and the same data."""
    page = {
        event_type: (set(re.findall(r"→ `(\w+)`", ways)), set(re.findall(r"`(\w+)`", fields)))
        for event_type, ways, fields in ROW.findall(PAGE)
    }
    told = {}
    for event_type, hook in HOOKS.items():
        content = hook["post"]["requestBody"]["content"]["application/cloudevents+json"]
        data = resolve(resolve(content["schema"])["properties"]["data"])
        status = data["properties"]["status"]
        fields = set(data["required"]) - {"status", "previous"}
        told[event_type] = (set(status.get("enum", [status.get("const")])), fields)
    assert told == page
    assert {name: set(map(to_camel, kind.fields)) for name, kind in EVENT_TYPES.items()} == {
        name: fields for name, (_, fields) in told.items()
    }


async def test_events_are_sent_as_the_document_says(pg_dsn: str, sandbox: Sandbox) -> None:
    """Every event of an order, its headers too, fits the webhook of its type, and so does what is streamed of it."""
    async with (
        serve(ok) as receiver,
        service_running(settings_for(pg_dsn, sandbox.url, environ(f"{receiver.url}/hook"))) as service,
    ):
        await service.reach([await service.place()], "COMPLETED")
        async with asyncio.timeout(10):
            await receiver.has_received(7)
        order_id = await service.place()
        stream = (await service.client.get(f"/orders/{order_id}/events")).text
    for request in receiver.received:
        event = told(request)
        assert misfits(event) == []
        for parameter in map(resolve, HOOKS[event["type"]]["post"]["parameters"]):
            assert complaints(parameter["schema"], request.headers[parameter["name"]]) == []
    streamed = [json.loads(data) for data in re.findall("^data: (.*)$", stream, re.MULTILINE)]
    assert streamed[-1]["type"] == "order.completed"
    assert [misfits(event) for event in streamed] == [[]] * len(streamed)


def misfits(event: dict[str, Any]) -> list[str]:
    """What the webhook of the event's type has against it."""
    content = HOOKS[event["type"]]["post"]["requestBody"]["content"]
    return complaints(content["application/cloudevents+json"]["schema"], event)
