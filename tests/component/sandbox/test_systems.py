"""What a stand-in answers: to each as its contract has it, and once for each key."""

from collections.abc import AsyncIterator

import pytest

from app.sandbox.contracts import CONTRACTS, Contract
from tests.component.sandbox.caller import BODY, EVERY, POLLED, Caller


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


async def test_the_front_page_lists_the_systems(sandbox: Caller) -> None:
    """The root tells every system's knobs and counters."""
    front = (await sandbox.http.get("/")).json()
    assert list(front) == ["insurance", "sber", "receipt", "odnakassa", "orderbook"]
    assert front["receipt"] == (await sandbox.http.get("/receipt/_control")).json()
