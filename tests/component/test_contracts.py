from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from httpx_aiohttp import AiohttpTransport
from openapi_core import OpenAPI
from openapi_core.exceptions import OpenAPIError
from openapi_core.testing import MockRequest, MockResponse
from openapi_spec_validator import validate

import app.systems
from app.sandbox.contracts import CONTRACTS, Contract
from app.sandbox.server import running_sandbox

FOLDER = Path(app.systems.__path__[0])
MONEY = {"amount": "1990.00", "currency": "RUB"}
ITEMS = [{"sku": "seat", "quantity": 2, "price": MONEY}]
BODIES: dict[str, dict[str, Any]] = {
    "insurance": {"orderId": 7, "customerId": "c-42", "items": ITEMS},
    "sber": {"orderId": 7, "amount": MONEY},
    "receipt": {"orderId": 7, "paymentId": "p-1", "items": ITEMS},
    "odnakassa": {"orderId": 7, "items": ITEMS},
    "orderbook": {"orderId": 7, "customerId": "c-42", "status": "BOOKED", "items": ITEMS},
}
pytestmark = pytest.mark.rule("OAS-3")


class Exchange:
    """Speaks to one stand-in and holds every call and answer against the system's openapi.yml."""

    def __init__(self, contract: Contract, http: httpx.AsyncClient) -> None:
        self.contract = contract
        self.openapi = OpenAPI.from_file_path(str(FOLDER / contract.name / "openapi.yml"))
        self.body, self.key, self.id = BODIES[contract.name], "k-1", "unknown"
        self._http = http

    async def write(self) -> httpx.Response:
        answer = await self.call(self.contract.write)
        self.id = answer.json().get("id", self.id) if answer.content else self.id
        return answer

    async def read(self) -> httpx.Response:
        return await self.call(self.contract.read)

    async def call(self, endpoint: str) -> httpx.Response:
        """Raise an OpenAPIError when the contract does not allow the answer, or a call that was accepted."""
        method, path = endpoint.split()
        url = f"/{self.contract.name}{path.format(orderId=7, id=self.id)}"
        if method == "GET":
            answer = await self._http.get(url)
        else:
            answer = await self._http.request(method, url, json=self.body, headers={"Idempotency-Key": self.key})
        asked = _asked(answer.request)
        if answer.is_success:
            self.openapi.validate_request(asked)
        self.openapi.validate_response(asked, _told(answer))
        return answer

    async def turn(self, **knobs: Any) -> None:
        (await self._http.put(f"/{self.contract.name}/_control", json=knobs)).raise_for_status()


def _asked(request: httpx.Request) -> MockRequest:
    return MockRequest(
        "http://sandbox", request.method, request.url.path, headers=dict(request.headers), data=request.content
    )


def _told(answer: httpx.Response) -> MockResponse:
    media_type = answer.headers.get("content-type", "")
    return MockResponse(answer.content, answer.status_code, dict(answer.headers), media_type)


@pytest.fixture(params=CONTRACTS, ids=lambda contract: contract.name)
async def exchange(request: pytest.FixtureRequest) -> AsyncIterator[Exchange]:
    async with (
        running_sandbox() as url,
        httpx.AsyncClient(base_url=url, transport=AiohttpTransport(verify=False)) as http,
    ):
        yield Exchange(request.param, http)


async def test_the_file_is_a_valid_contract_for_the_stand_in(exchange: Exchange) -> None:
    """Each system's file is valid OpenAPI 3.1 and names exactly the endpoints that the sandbox plays."""
    spec = yaml.safe_load((FOLDER / exchange.contract.name / "openapi.yml").read_text())
    validate(spec)
    assert spec["openapi"].startswith("3.1")
    named = {f"{method.upper()} {path}" for path, methods in spec["paths"].items() for method in methods}
    assert named == {exchange.contract.write, exchange.contract.read, "GET /health"}


async def test_health_keeps_the_contract(exchange: Exchange) -> None:
    """A working system answers its health path with 2xx, a broken one with 503."""
    assert (await exchange.call("GET /health")).status_code == 200
    await exchange.turn(mode="error")
    assert (await exchange.call("GET /health")).status_code == 503


async def test_the_way_to_every_ending_keeps_the_contract(exchange: Exchange) -> None:
    """First and repeated write, pending and final status are all as the file says."""
    for order, outcome in enumerate(exchange.contract.endings or [None]):
        exchange.key = f"k-{order}"
        await exchange.turn(polls_before_final=1, outcome=outcome)
        written = [(await exchange.write()).status_code for _ in range(2)]
        assert written == list(exchange.contract.accepts)
        told = [(await exchange.read()).json() for _ in range(2)]
        if outcome:
            assert [answer["status"] for answer in told] == [exchange.contract.pending, outcome]
        else:
            assert told == [exchange.body] * 2


async def test_errors_keep_the_contract(exchange: Exchange) -> None:
    """Each error is one the file knows: no key, a broken body, an unknown id, a system that is down."""
    body = exchange.body
    assert (await exchange.read()).status_code == 404
    exchange.body = {}
    assert (await exchange.write()).status_code == 422
    exchange.body, exchange.key = body, ""
    assert (await exchange.write()).status_code == 400
    exchange.key = "k-1"
    await exchange.turn(mode="error")
    assert (await exchange.write()).status_code == 503
    assert (await exchange.read()).status_code == 503


async def test_an_answer_outside_the_contract_is_noticed(exchange: Exchange) -> None:
    """The check bites: garbage in place of an answer breaks the contract."""
    await exchange.write()
    await exchange.turn(mode="garbage")
    with pytest.raises(OpenAPIError):
        await exchange.read()


@pytest.mark.parametrize("broken", ["field missing", "field of another type", "key missing"])
async def test_a_call_outside_the_contract_is_noticed(exchange: Exchange, broken: str) -> None:
    """The check bites: the file allows no write without its key or its fields."""
    answer = await exchange.write()
    content, headers = dict(exchange.body), dict(answer.request.headers)
    if broken == "key missing":
        del headers["idempotency-key"]
    elif broken == "field missing":
        content.popitem()
    else:
        content["orderId"] = "7"
    asked = httpx.Request(answer.request.method, answer.request.url, json=content, headers=headers)
    with pytest.raises(OpenAPIError):
        exchange.openapi.validate_request(_asked(asked))
