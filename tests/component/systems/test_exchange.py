import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prometheus_client import REGISTRY
from pydantic import model_validator

from app.orders.ports import InvalidAnswer, SystemRefused, SystemUnavailable
from app.resilience import Policy
from app.systems.client import Client
from app.systems.exchange import Exchange
from app.systems.insurance.adapter import InsuranceAdapter
from app.systems.request import Request
from app.systems.system import open_system
from app.systems.wire import Answer
from tests.component.systems import hostile
from tests.component.systems.hostile import Received, response, say, serve
from tests.component.systems.orders import ORDER
from tests.component.systems.sections import TWICE, section

PENDING = say(response(b'{"status":"PENDING","applicationId":"a-1"}'))


def counted(operation: str, outcome: str) -> float:
    labels = {"system": "insurance", "operation": operation, "outcome": outcome}
    return REGISTRY.get_sample_value("external_call_seconds_count", labels) or 0.0


@pytest.mark.rule("CB-1", "CB-6", "WHERE-1")
async def test_an_open_breaker_is_system_unavailable() -> None:
    """After ten unusable answers no call is made: SystemUnavailable, with the time until it is worth asking again."""
    async with (
        serve(say(response(b"<html>"))) as peer,
        open_system("insurance", section(peer.url), InsuranceAdapter) as system,
    ):
        for _ in range(10):
            with pytest.raises(InvalidAnswer):
                await system.adapter.confirmation(ORDER, budget=20)
        with pytest.raises(SystemUnavailable) as raised:
            await system.adapter.apply(ORDER, key="k-1", budget=20)
        assert system.snapshot().policy.state == "open"
    error = raised.value
    assert (error.kind, error.call_made) == ("circuit_open", False)
    assert error.retry_after is not None
    assert 0 < error.retry_after <= 30
    assert len(peer.received) == 10


@pytest.mark.rule("RE-X2")
async def test_a_refusal_is_neither_repeated_nor_the_breakers_business() -> None:
    """Fifty 404s are fifty calls, each SystemRefused, and the breaker stays closed."""
    async with (
        serve(say(response(status="404 Not Found"))) as peer,
        open_system("insurance", section(peer.url, retry=TWICE), InsuranceAdapter) as system,
    ):
        for _ in range(50):
            with pytest.raises(SystemRefused):
                await system.adapter.confirmation(ORDER, budget=20)
        assert system.snapshot().policy.state == "closed"
    assert len(peer.received) == 50


@pytest.mark.rule("RE-1")
async def test_a_read_is_repeated_after_a_transient_error() -> None:
    """A 503 costs an attempt, not the call."""

    async def flaky(_: Received, writer: asyncio.StreamWriter) -> None:
        first = len(peer.received) == 1
        writer.write(response(status="503 No") if first else response(b'{"status":"CONFIRMED"}'))
        await writer.drain()

    async with (
        serve(flaky) as peer,
        open_system("insurance", section(peer.url, retry=TWICE), InsuranceAdapter) as system,
    ):
        assert (await system.adapter.confirmation(ORDER, budget=20)).status == "CONFIRMED"
    assert len(peer.received) == 2


async def test_our_own_bug_rises_as_it_is() -> None:
    """An exception of ours is no port error and no sample of the breaker."""

    class Buggy(Answer):
        @model_validator(mode="before")
        @classmethod
        def _fail(cls, _: Any) -> Any:
            raise ZeroDivisionError

    bugs = counted("buggy", "bug")
    async with serve(say(response(b"{}"))) as peer:
        settings = section(peer.url)
        client, policy = Client("insurance", settings), Policy("insurance", settings)
        with pytest.raises(ZeroDivisionError):
            await Exchange(client, policy).ask(Request("buggy", "GET", "/"), Buggy, budget=20)
        await client.aclose()
    assert policy.snapshot().samples == 0
    assert counted("buggy", "bug") == bugs + 1


@pytest.mark.rule("OBS-2")
async def test_each_call_has_a_span(spans: InMemorySpanExporter) -> None:
    """A span names system and operation, and says how the breaker stood, how often was asked, and what came of it."""
    async with (
        serve(PENDING) as peer,
        open_system("insurance", section(peer.url, retry=TWICE), InsuranceAdapter) as system,
    ):
        await system.adapter.confirmation(ORDER, budget=20)
    async with open_system("insurance", section(peer.url, retry=TWICE), InsuranceAdapter) as system:
        with pytest.raises(SystemUnavailable):
            await system.adapter.apply(ORDER, key="k-1", budget=20)
        system.policy.isolate()
        with pytest.raises(SystemUnavailable):
            await system.adapter.apply(ORDER, key="k-1", budget=20)
    ended = spans.get_finished_spans()
    assert [(span.name, span.status.status_code) for span in ended] == [
        ("insurance.confirmation", StatusCode.UNSET),
        ("insurance.apply", StatusCode.ERROR),
        ("insurance.apply", StatusCode.ERROR),
    ]
    seen = {"external.system": "insurance", "circuit_breaker.state": "closed"}
    assert [dict(span.attributes or {}) for span in ended] == [
        {**seen, "outcome": "success", "attempts": 1},
        {**seen, "outcome": "not_made", "attempts": 2},
        {**seen, "outcome": "not_made", "attempts": 0, "circuit_breaker.state": "open"},
    ]


@pytest.mark.rule("OBS-1", "ISO-3")
@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (PENDING, "success"),
        (say(response(status="404 No")), "refused"),
        (say(response(status="500 No")), "unavailable"),
        (say(response(b"[]")), "invalid_answer"),
        (hostile.hang, "cancelled"),
    ],
)
async def test_each_call_is_measured_by_its_outcome(answer: hostile.Answer, outcome: str) -> None:
    """The duration goes to the series of system, operation and outcome."""
    before = counted("confirmation", outcome)
    async with serve(answer) as peer, open_system("insurance", section(peer.url), InsuranceAdapter) as system:
        call = asyncio.create_task(system.adapter.confirmation(ORDER, budget=20))
        await peer.has_received()
        if outcome == "cancelled":
            call.cancel()
        await asyncio.wait({call})
        assert outcome == "success" or call.cancelled() or call.exception()
    assert counted("confirmation", outcome) == before + 1
