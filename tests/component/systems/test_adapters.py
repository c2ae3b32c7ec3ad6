import asyncio
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from openapi_core import OpenAPI
from openapi_core.testing import MockRequest

import app.systems
from app.orders.money import Money
from app.orders.order import Item
from app.orders.ports import Confirmation, InvalidAnswer, Receipt, SystemUnavailable
from app.systems.sber.adapter import SberAdapter
from app.systems.system import open_system
from tests.component.systems.calls import CALLS, Asked, ask
from tests.component.systems.hostile import Received, response, say, serve
from tests.component.systems.orders import ORDER
from tests.component.systems.sections import section

FOLDER = Path(app.systems.__path__[0])


WRONG: tuple[Any, ...] = (None, 1, True, [], {}, "", ".", "..", "x" * 2_001, "a\u0000b", "a\nb", "WHAT\r")
EVERY = pytest.mark.parametrize("asked", CALLS, ids=str)
ANSWERED = pytest.mark.parametrize("asked", [asked for asked in CALLS if asked.answer], ids=str)


def contract(asked: Asked) -> OpenAPI:
    return OpenAPI.from_file_path(str(FOLDER / asked.system / "openapi.yml"))


@pytest.mark.rule("OAS-3", "OAS-4", "OAS-X3")
@EVERY
async def test_a_call_keeps_the_contract_and_ends_in_the_domain(asked: Asked) -> None:
    """The request is as the system's file describes it, to the last field; the answer becomes the port's type."""
    body = b"" if asked.answer is None else json.dumps({**asked.answer, "new": {"field": None}}).encode()
    result, received = await ask(asked, response(body))
    assert result == asked.result
    assert type(result) is type(asked.result)
    assert f"{received.method} {received.path}" == asked.line
    assert received.headers.get("idempotency-key") == asked.key
    assert (json.loads(received.body) if received.body else None) == asked.sent
    contract(asked).validate_request(
        MockRequest(
            "http://peer",
            received.method,
            f"/{asked.system}{received.path}",
            headers=received.headers,
            data=received.body or None,
        )
    )


@pytest.mark.rule("WHERE-1", "WHERE-2", "CB-1", "CB-6", "OAS-1")
@EVERY
async def test_every_public_method_goes_through_the_policy(asked: Asked) -> None:
    """With the breaker held open no method of any adapter makes a call, and each says when it is worth asking again."""
    async with (
        serve(say(response(b"{}"))) as peer,
        open_system(asked.system, section(peer.url), asked.adapter) as system,
    ):
        system.policy.isolate()
        with pytest.raises(SystemUnavailable) as raised:
            await asked.call(system.adapter)
    error = raised.value
    assert (error.system, error.kind, error.call_made) == (asked.system, "circuit_open", False)
    assert error.retry_after
    assert peer.received == []


def test_no_public_method_is_left_out() -> None:
    """The cases above are all methods of all five adapters."""
    adapters = {asked.adapter for asked in CALLS}
    methods = [name for adapter in adapters for name in vars(adapter) if not name.startswith("_")]
    assert len(adapters) == 5
    assert len(methods) == len(CALLS)


@ANSWERED
async def test_an_answer_of_wrong_shape_is_invalid(asked: Asked) -> None:
    """Each field that is used is checked: missing, of another type, empty, endless or with NUL, it breaks the call."""
    assert asked.answer
    spoiled = [name for name in asked.answer if name not in {"reason", "tickets"} | _unused(asked)]
    for name in spoiled:
        for wrong in WRONG:
            with pytest.raises(InvalidAnswer) as raised:
                await ask(asked, response(json.dumps({**asked.answer, name: wrong}).encode()))
            assert raised.value.kind == "unexpected_answer"
        without = {key: value for key, value in asked.answer.items() if key != name}
        with pytest.raises(InvalidAnswer):
            await ask(asked, response(json.dumps(without).encode()))


def _unused(asked: Asked) -> set[str]:
    return {"POST /payments": {"status"}, "GET /orders/17/status": {"applicationId"}}.get(asked.line, set())


@pytest.mark.parametrize(
    "asked", [asked for asked in CALLS if asked.line.split("/")[-1] in {"p-1", "r-1", "b-1"}], ids=str
)
async def test_an_answer_about_something_else_is_invalid(asked: Asked) -> None:
    """The status of another order's payment, receipt or booking is nobody's."""
    assert asked.answer
    with pytest.raises(InvalidAnswer, match="not the one that was asked for"):
        await ask(asked, response(json.dumps({**asked.answer, "id": "another"}).encode()))


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "//sber.example", "https://", "https://a b", "ftp://a", 'http://"']
)
async def test_a_payment_url_is_a_web_address(url: str) -> None:
    """The link that the customer is sent to is http or https, and fit for a header."""
    answer = {"id": "p-1", "status": "REGISTERED", "paymentUrl": url}
    with pytest.raises(InvalidAnswer):
        await ask(CALLS[2], response(json.dumps(answer).encode()))


async def test_a_receipt_is_not_issued_without_its_number() -> None:
    """ISSUED without a fiscal number is no answer, QUEUED without one is."""
    find = CALLS[5]
    result, _ = await ask(find, response(b'{"id":"r-1","status":"QUEUED"}'))
    assert result == Receipt("QUEUED")
    with pytest.raises(InvalidAnswer):
        await ask(find, response(b'{"id":"r-1","status":"ISSUED"}'))


@pytest.mark.parametrize("status", ["200 OK", "201 Created", "204 No Content"])
async def test_the_order_book_needs_no_body(status: str) -> None:
    """Any of the three answers of the contract means recorded."""
    answer = f"HTTP/1.1 {status}\r\n{'' if status.startswith('204') else 'Content-Length: 0'}\r\n\r\n".replace(
        "\r\n\r\n\r\n", "\r\n\r\n"
    )
    result, _ = await ask(CALLS[8], answer.encode())
    assert result is None


@pytest.mark.rule("FB-X2")
async def test_a_login_page_is_no_record() -> None:
    """HTML with status 200 in answer to the order book's PUT is an error, not a silent success."""
    with pytest.raises(InvalidAnswer):
        await ask(CALLS[8], response(b"<html>Log in</html>", Content_Type="text/html"))


@pytest.mark.parametrize(
    "amount", ["0.10", "1E+3", "12345678901234567890.123456789", "0.1000000000000000055511151231257827"]
)
async def test_money_goes_out_exactly(amount: str) -> None:
    """Every digit of an amount arrives, and never an exponent."""
    order = replace(ORDER, items=(Item("seat", 1, Money(Decimal(amount), "RUB")),))
    asked = replace(CALLS[0], call=lambda adapter: adapter.apply(order, key="k-1", budget=20))
    _, received = await ask(asked, response(json.dumps(asked.answer).encode()))
    [item] = json.loads(received.body)["items"]
    assert item["price"]["amount"] == f"{Decimal(amount):f}"


async def test_a_long_reason_is_kept_in_part() -> None:
    """A reason is free text: cut to a length that can be kept, it does not break the answer."""
    answer = json.dumps({"status": "REJECTED", "reason": "n" * 100_000}).encode()
    result, _ = await ask(CALLS[1], response(answer))
    assert result == Confirmation("REJECTED", "n" * 300)


async def test_calls_of_one_adapter_may_overlap() -> None:
    """Fifty calls at once, each with its own answer: none gets another's."""

    async def echo(request: Received, writer: asyncio.StreamWriter) -> None:
        payment = request.path.rpartition("/")[2]
        await asyncio.sleep(hash(payment) % 10 / 1_000)
        writer.write(response(json.dumps({"id": payment, "status": "PAID", "reason": payment}).encode()))
        await writer.drain()

    async with serve(echo) as peer, open_system("sber", section(peer.url, max_concurrent=50), SberAdapter) as system:
        found = await asyncio.gather(*(system.adapter.find(f"p-{number}", budget=20) for number in range(50)))
    assert [payment.reason for payment in found] == [f"p-{number}" for number in range(50)]
