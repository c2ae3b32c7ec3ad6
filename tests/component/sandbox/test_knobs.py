"""The control of a stand-in: how it can be made to misbehave, and what it counts."""

import asyncio
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from app.sandbox.contracts import CONTRACTS, Contract
from tests.component.sandbox.caller import EVERY, Caller


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
