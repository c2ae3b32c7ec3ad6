import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import httpx
import pytest
from httpx_aiohttp import AiohttpTransport

from app.sandbox.contracts import CONTRACTS, Contract
from app.sandbox.ledger import Ledger
from app.sandbox.server import running_sandbox

MONEY = {"amount": "1990.00", "currency": "RUB"}
BODY = {
    "customerId": "c-42",
    "items": [{"sku": "seat", "quantity": 1, "price": MONEY}],
    "amount": MONEY,
    "paymentId": "p-1",
}
EVERY = pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.name)
POLLED = pytest.mark.parametrize(
    "contract", [contract for contract in CONTRACTS if contract.endings], ids=lambda contract: contract.name
)


class Caller(NamedTuple):
    """Calls one sandbox in the words of a contract."""

    http: httpx.AsyncClient

    async def write(self, contract: Contract, order_id: int = 1, key: str | None = "k-1") -> httpx.Response:
        method, path = contract.write.split()
        headers = {} if key is None else {"Idempotency-Key": key}
        url = f"/{contract.name}{path.replace('{orderId}', str(order_id))}"
        return await self.http.request(method, url, json={"orderId": order_id, **BODY}, headers=headers)

    async def read(self, contract: Contract, order_id: int, operation_id: str = "") -> httpx.Response:
        path = contract.read.split()[1].replace("{orderId}", str(order_id)).replace("{id}", operation_id)
        return await self.http.get(f"/{contract.name}{path}")

    async def applied(self, contract: Contract, order_id: int = 1) -> dict[str, Any]:
        """Apply for the order and return what is told of it next."""
        written = (await self.write(contract, order_id, key=f"k-{order_id}")).json()
        told: dict[str, Any] = (await self.read(contract, order_id, written.get("id", ""))).json()
        return told

    async def turn(self, contract: Contract, **knobs: Any) -> httpx.Response:
        return await self.http.put(f"/{contract.name}/_control", json=knobs)

    async def counters(self, contract: Contract) -> dict[str, Any]:
        counters: dict[str, Any] = (await self.http.get(f"/{contract.name}/_control")).json()["counters"]
        return counters


def client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, transport=AiohttpTransport(verify=False, client=no_hidden_retry))


def no_hidden_retry() -> aiohttp.ClientSession:
    session = aiohttp.ClientSession()
    session._retry_connection = False  # aiohttp repeats a GET or PUT that was cut, and these tests count calls
    return session


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with running_sandbox() as base:
        yield base


@pytest.fixture
async def sandbox(url: str) -> AsyncIterator[Caller]:
    async with client(url) as http:
        yield Caller(http)


@EVERY
async def test_health_is_answered(sandbox: Caller, contract: Contract) -> None:
    """A system that works says so."""
    assert (await sandbox.http.get(f"/{contract.name}/health")).status_code == 200


@EVERY
async def test_a_write_without_a_key_is_refused(sandbox: Caller, contract: Contract) -> None:
    """A write that could not be repeated safely is refused and carries nothing out."""
    assert (await sandbox.write(contract, key=None)).status_code == 400
    assert (await sandbox.counters(contract))["operations"] == 0


@EVERY
async def test_a_broken_body_is_refused(sandbox: Caller, contract: Contract, subtests: pytest.Subtests) -> None:
    """A body that cannot be read or lacks fields never becomes a server error."""
    method, path = contract.write.split()
    headers = {"Idempotency-Key": "k-1", "Content-Type": "application/json"}
    url = f"/{contract.name}{path.replace('{orderId}', '1')}"
    for content, status in ((b"{", 400), (b'"\xff"', 400), (b"[]", 422), (b"{}", 422), (b"[" * 100_000, 400)):
        with subtests.test(content=content[:20]):
            answer = await sandbox.http.request(method, url, content=content, headers=headers)
            assert answer.status_code == status


async def test_a_large_body_is_refused(sandbox: Caller) -> None:
    """A body over 1 MiB is refused before it is all there."""

    async def large() -> AsyncIterator[bytes]:
        for _ in range(32):
            yield b" " * 65_536

    answer = await sandbox.http.post("/sber/payments", content=large(), headers={"Idempotency-Key": "k-1"})
    assert answer.status_code == 413


async def test_an_order_id_is_an_integer(sandbox: Caller, subtests: pytest.Subtests) -> None:
    """An order id of another type is refused by name."""
    for order_id in ("1", True, 1.5, None):
        with subtests.test(order_id=order_id):
            answer = await sandbox.http.post(
                "/odnakassa/bookings", json={"orderId": order_id, "items": []}, headers={"Idempotency-Key": "k-1"}
            )
            assert (answer.status_code, answer.json()) == (422, {"error": "orderId is not an integer"})


@POLLED
async def test_the_same_key_gets_the_same_answer(sandbox: Caller, contract: Contract) -> None:
    """A repeated write is carried out once, answered as before, and counted."""
    first, second = await sandbox.write(contract), await sandbox.write(contract)
    assert (second.status_code, second.content) == (first.status_code, first.content)
    counters = await sandbox.counters(contract)
    assert (counters["operations"], counters["repeated_keys"], counters["orders_seen_twice"]) == (1, 1, 0)
    assert counters["calls"][contract.write] == 2


@EVERY
async def test_an_order_under_a_second_key_is_seen_twice(sandbox: Caller, contract: Contract) -> None:
    """A second operation for one order shows in the counters and in the number kept for the order."""
    for order_id, key in [(1, "k-1"), (2, "k-2"), (2, "k-3"), (2, "k-4")]:
        assert (await sandbox.write(contract, order_id, key)).is_success
    counters = await sandbox.counters(contract)
    assert (counters["operations"], counters["orders_seen_twice"], counters["repeated_keys"]) == (4, 1, 0)
    assert (await sandbox.http.get(f"/{contract.name}/_control/orders")).json() == {"1": 1, "2": 3}


@EVERY
async def test_a_key_belongs_to_one_order(sandbox: Caller, contract: Contract) -> None:
    """A key that comes back with another order is refused."""
    await sandbox.write(contract, order_id=1, key="k-1")
    assert (await sandbox.write(contract, order_id=2, key="k-1")).status_code == 422


@EVERY
async def test_what_was_never_written_is_not_found(sandbox: Caller, contract: Contract) -> None:
    """An order or an id that nobody wrote is unknown."""
    assert (await sandbox.read(contract, 404, "no-such-id")).status_code == 404


@POLLED
async def test_polls_before_final(sandbox: Caller, contract: Contract) -> None:
    """That many status calls are answered as pending, every later one with the same ending."""
    await sandbox.turn(contract, polls_before_final=2)
    written = (await sandbox.write(contract)).json()
    told = [(await sandbox.read(contract, 1, written.get("id", ""))).json()["status"] for _ in range(4)]
    good = next(iter(contract.endings))
    assert told == [contract.pending, contract.pending, good, good]


@POLLED
async def test_outcome(sandbox: Caller, contract: Contract) -> None:
    """The outcome knob chooses the ending; an ending once told does not change."""
    good, bad = contract.endings
    assert (await sandbox.applied(contract, 1))["status"] == good
    await sandbox.turn(contract, outcome=bad)
    assert (await sandbox.applied(contract, 1))["status"] == good
    assert (await sandbox.applied(contract, 2))["status"] == bad
    await sandbox.turn(contract, outcome=None)
    assert (await sandbox.applied(contract, 3))["status"] == good


async def test_the_order_book_keeps_entries(sandbox: Caller) -> None:
    """An entry is new once, replaced from then on, and can be read back."""
    book = CONTRACTS[-1]
    assert [(await sandbox.write(book)).status_code for _ in range(3)] == [201, 200, 200]
    assert (await sandbox.write(book, key="k-2")).status_code == 200
    assert (await sandbox.read(book, 1)).json() == {"orderId": 1, **BODY}


@EVERY
@pytest.mark.parametrize("mode", ["error", "garbage", "hang", "reset"])
async def test_a_bad_mode_spares_only_the_control(sandbox: Caller, contract: Contract, mode: str) -> None:
    """A system in a bad mode answers neither business calls nor health; they are counted, and the others go on."""
    await sandbox.turn(contract, mode=mode)
    calls = [sandbox.write(contract), sandbox.read(contract, 1, "any"), sandbox.http.get(f"/{contract.name}/health")]
    seen = {"error": "503", "garbage": "text/html", "hang": "nothing", "reset": "cut"}[mode]
    assert set(await asyncio.gather(*map(outcome, calls))) == {seen}
    assert set((await sandbox.counters(contract))["calls"].values()) == {1}
    assert (await sandbox.counters(contract))["operations"] == 0
    other = next(other for other in CONTRACTS if other is not contract)
    assert (await sandbox.write(other)).is_success
    await sandbox.turn(contract, mode="ok")
    assert (await sandbox.write(contract)).is_success


async def outcome(call: Any) -> str:
    try:
        async with asyncio.timeout(0.5):
            answer: httpx.Response = await call
    except TimeoutError:
        return "nothing"
    except httpx.TransportError:
        return "cut"
    assert answer.status_code == 503 or answer.is_success
    return "503" if answer.status_code == 503 else answer.headers["content-type"].split(";")[0]


async def test_reset_is_a_tcp_reset(sandbox: Caller, url: str) -> None:
    """Mode reset ends the connection with RST, not with an orderly close."""
    await sandbox.turn(CONTRACTS[0], mode="reset")
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    writer.write(b"GET /insurance/health HTTP/1.1\r\nHost: sandbox\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


async def test_a_slow_answer_comes_late_but_takes_effect_at_once(sandbox: Caller) -> None:
    """A caller that gives up on a slow write finds it carried out."""
    insurance = CONTRACTS[0]
    await sandbox.turn(insurance, mode="slow", latency_ms=300)
    assert await outcome_within(0.1, sandbox.write(insurance)) is None
    assert (await sandbox.counters(insurance))["operations"] == 1
    assert await outcome_within(5, sandbox.write(insurance)) == 202
    assert (await sandbox.counters(insurance))["repeated_keys"] == 1


async def outcome_within(seconds: float, call: Any) -> int | None:
    try:
        async with asyncio.timeout(seconds):
            answer: httpx.Response = await call
    except TimeoutError:
        return None
    return answer.status_code


@pytest.mark.parametrize(("error_rate", "statuses"), [(0, {200}), (0.5, {200, 503}), (1, {503})])
async def test_error_rate(sandbox: Caller, error_rate: float, statuses: set[int]) -> None:
    """The error rate is the share of calls that fail while the system works."""
    await sandbox.turn(CONTRACTS[1], error_rate=error_rate)
    assert {(await sandbox.http.get("/sber/health")).status_code for _ in range(100)} == statuses


async def test_only_the_named_knobs_turn(sandbox: Caller) -> None:
    """A partial update leaves the other knobs as they were."""
    insurance = CONTRACTS[0]
    await sandbox.turn(insurance, polls_before_final=3, outcome="REJECTED")
    answer = await sandbox.turn(insurance, mode="slow", latency_ms=5)
    assert (
        answer.json()
        == (await sandbox.http.get("/insurance/_control")).json()
        == {
            "mode": "slow",
            "latency_ms": 5,
            "error_rate": 0.0,
            "polls_before_final": 3,
            "outcome": "REJECTED",
            "outcomes": ["CONFIRMED", "REJECTED"],
            "counters": {
                "calls": {"POST /applications": 0, "GET /orders/{orderId}/status": 0, "GET /health": 0},
                "operations": 0,
                "repeated_keys": 0,
                "orders_seen_twice": 0,
            },
        }
    )


BAD_KNOBS: list[tuple[str, Any]] = [
    ("mode", "tired"),
    ("latency_ms", -1),
    ("latency_ms", 60_001),
    ("latency_ms", "5"),
    ("error_rate", 1.1),
    ("polls_before_final", True),
    ("outcome", "PAID"),
    ("speed", 1),
]


async def test_a_bad_value_turns_no_knob(sandbox: Caller, subtests: pytest.Subtests) -> None:
    """A bad value is refused by the knob's name, and nothing else of that update counts."""
    for knob, value in BAD_KNOBS:
        with subtests.test(knob=knob, value=value):
            answer = await sandbox.turn(CONTRACTS[0], **({"polls_before_final": 7} | {knob: value}))
            assert answer.status_code == 422
            assert answer.json()["error"].startswith(f"{knob}: ")
            assert (await sandbox.http.get("/insurance/_control")).json()["polls_before_final"] == 0


async def test_the_order_book_has_no_outcome(sandbox: Caller) -> None:
    """A system without endings takes no outcome but null."""
    assert (await sandbox.turn(CONTRACTS[-1], outcome="BOOKED")).status_code == 422
    assert (await sandbox.turn(CONTRACTS[-1], outcome=None)).status_code == 200


async def test_counters_are_zeroed_and_operations_forgotten_apart(sandbox: Caller) -> None:
    """Zeroed counters leave knobs and operations alone; forgotten operations can be carried out anew."""
    sber = CONTRACTS[1]
    await sandbox.turn(sber, polls_before_final=1)
    await sandbox.write(sber)
    assert (await sandbox.http.delete("/sber/_control")).status_code == 204
    assert (await sandbox.counters(sber))["operations"] == 0
    assert (await sandbox.counters(sber))["calls"]["POST /payments"] == 0
    assert (await sandbox.http.get("/sber/_control")).json()["polls_before_final"] == 1
    await sandbox.write(sber)
    assert (await sandbox.counters(sber))["repeated_keys"] == 1
    assert (await sandbox.http.delete("/sber/_control/orders")).status_code == 204
    assert (await sandbox.http.get("/sber/_control/orders")).json() == {}
    await sandbox.write(sber)
    assert (await sandbox.counters(sber))["operations"] == 1


async def test_the_front_page_lists_the_systems(sandbox: Caller) -> None:
    """The root tells every system's knobs and counters."""
    front = (await sandbox.http.get("/")).json()
    assert list(front) == ["insurance", "sber", "receipt", "odnakassa", "orderbook"]
    assert front["receipt"] == (await sandbox.http.get("/receipt/_control")).json()


def test_the_orders_touched_longest_ago_are_forgotten() -> None:
    """Beyond its limit a ledger forgets whole orders, the least recently touched first."""
    ledger = Ledger("sber", limit=3)
    for order_id in (1, 2, 3):
        ledger.record(f"k-{order_id}", order_id)
    ledger.find("sber-1-1")
    ledger.record("k-2", 2)
    ledger.record("k-4", 4)
    assert ledger.operations_per_order() == {1: 1, 2: 1, 4: 1}
    assert ledger.find("sber-3-1") is None
    ledger.record("k-5", 4)
    assert ledger.operations_per_order() == {2: 1, 4: 2}
    assert ledger.record("k-3", 3).id == "sber-3-1"


async def test_a_hanging_caller_does_not_keep_it_from_stopping() -> None:
    """When the sandbox stops, the calls that hang are cut."""
    async with running_sandbox() as url:
        http = client(url)
        await http.put("/sber/_control", json={"mode": "hang"})
        hanging = asyncio.create_task(http.get("/sber/health"))
        assert not (await asyncio.wait({hanging}, timeout=0.1))[0]
    with pytest.raises(httpx.TransportError):
        await hanging
    await http.aclose()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_stops_the_process_cleanly(stop: signal.Signals) -> None:
    """The sandbox process says where it serves and exits 0 on either signal, silently."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        "from app.sandbox.server import run; run('127.0.0.1', 0)",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    url = (await process.stdout.readline()).decode().removeprefix("sandbox: ").strip()
    async with client(url) as http:
        assert (await http.get("/insurance/health")).status_code == 200
    process.send_signal(stop)
    _, errors = await process.communicate()
    assert (process.returncode, errors) == (0, b"")
