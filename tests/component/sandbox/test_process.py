"""The sandbox over time: what it forgets, and how it ends."""

import asyncio
import signal
import sys

import httpx
import pytest

from app.sandbox.ledger import Ledger
from app.sandbox.server import running_sandbox
from tests.component.sandbox.caller import client


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
