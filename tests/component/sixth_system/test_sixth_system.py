"""A sixth system, added in a copy of the project as docs/add-a-system.md says: block by block, command by command."""

import asyncio
import json
from asyncio import StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from httpx_aiohttp import HttpxAiohttpClient
from openapi_core import OpenAPI
from openapi_core.testing import MockRequest

from tests.component.sixth_system.guide import ROOT, Change, Copy, chapters, patched
from tests.component.systems.hostile import Peer, Received, response, serve
from tests.processes import Process, Processes, processes
from tests.service import ORDER, sandbox_running, service_running, settings_for

QUESTION, SYSTEM, STEP, STAND_IN, _ = chapters((ROOT / "docs/add-a-system.md").read_text())
FIVE_TASKS = ["order_confirmation_task", "payment_task", "receipt_creation_task", "booking_task", "orderbook_task"]
SIX_TASKS = [*FIVE_TASKS[:4], "reward_task", FIVE_TASKS[4]]

pytestmark = [pytest.mark.slow, pytest.mark.release]


class SystemAlone(NamedTuple):
    """A copy where the system is there and nobody asks it yet, and what it took to get there."""

    copy: Copy
    question: dict[str, Change]
    system: dict[str, Change]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> SystemAlone:
    copy = Copy(tmp_path_factory.mktemp("alone") / "orders")
    return SystemAlone(copy, copy.follow(QUESTION), copy.follow(SYSTEM))


@asynccontextmanager
async def loyalty_running() -> AsyncIterator[tuple[Peer, set[str]]]:
    """A system that grants points to everybody but the customers in the set, whom it refuses."""
    strangers: set[str] = set()
    looks = 0

    def told(received: Received) -> tuple[str, dict[str, Any]]:
        nonlocal looks
        if received.path == "/loyalty/health":
            return "200 OK", {}
        if received.method == "POST":
            asked = json.loads(received.body)
            if asked["customerId"] in strangers:
                return "422 Unprocessable Content", {"error": "unknown customer"}
            return "202 Accepted", {"id": f"r-{asked['orderId']}"}
        looks += 1
        state = {"status": "PENDING"} if looks == 1 else {"status": "GRANTED", "points": 398}
        return "200 OK", {"id": received.path.rsplit("/", 1)[1], **state}

    async def answer(received: Received, writer: StreamWriter) -> None:
        status, body = told(received)
        writer.write(response(json.dumps(body).encode(), status, Content_Type="application/json"))
        await writer.drain()

    async with serve(answer) as peer:
        yield peer, strangers


def start(run: Processes, loyalty: Peer) -> Process:
    """Start the copy's service; the copy's sandbox plays the five systems, `loyalty` the sixth."""
    run.environ |= {"PYTHONPATH": str(run.directory)}
    run.sandbox()
    run.environ |= {"ORDERS_CLIENT__LOYALTY__BASE_URL": f"{loyalty.url}/loyalty"}
    return run.serve()


async def place(client: HttpxAiohttpClient, customer: str = "c-42") -> int:
    return int((await client.post("/orders", json={**ORDER, "customerId": customer})).json()["orderId"])


async def reach(client: HttpxAiohttpClient, order_id: int, status: str) -> dict[str, Any]:
    """Wait until the order has this status; returns it."""
    order: dict[str, Any] = {}
    try:
        async with asyncio.timeout(30):
            while order.get("status") != status:
                await asyncio.sleep(0.05)
                order = (await client.get(f"/orders/{order_id}")).json()
    except TimeoutError:
        raise AssertionError(f"not {status}: {order}") from None
    return order


@pytest.mark.rule("ISO-3", "CFG-3")
def test_a_system_costs_a_folder_a_section_and_a_line(alone: SystemAlone) -> None:
    """Its chapter adds the four files, the section, and an import with its line; it changes nothing that was there."""
    folder = [f"app/systems/loyalty/{name}" for name in ("__init__.py", "adapter.py", "openapi.yml", "wire.py")]
    assert list(alone.question) == ["app/orders/ports.py"]
    assert list(alone.system) == [*folder, "app/wiring.py", "config/default.yml"]
    assert alone.system["app/wiring.py"] == Change(added=2, removed=0)
    assert alone.system["config/default.yml"] == Change(added=3, removed=0)


@pytest.mark.rule("ISO-3", "HC-1", "OBS-1")
async def test_a_system_is_seen_before_anybody_asks_it(alone: SystemAlone, pg_dsn: str) -> None:
    """Health, breaker and metrics of the new system are there under its name, and orders go their old way."""
    async with loyalty_running() as (loyalty, _):
        with processes(pg_dsn, alone.copy.root) as run:
            service = await asyncio.to_thread(start, run, loyalty)
            async with HttpxAiohttpClient(base_url=service.url) as client:
                seen = (await client.get("/health/ready")).json()["systems"]["loyalty"]
                order = await reach(client, await place(client), "COMPLETED")
                metrics = (await client.get("/metrics")).text
    assert (seen["up"], seen["breaker"]) == (True, "closed")
    assert 'circuit_breaker_state{system="loyalty"} 0.0' in metrics
    assert [step["task"] for step in order["steps"]] == FIVE_TASKS
    assert {received.path for received in loyalty.received} == {"/loyalty/health"}


@pytest.mark.parametrize(
    ("file", "line", "guard"),
    [
        ("app/systems/loyalty/adapter.py", "from app.systems.sber.adapter import SberAdapter", "lint-imports"),
        ("app/systems/sber/wire.py", "from app.systems.loyalty.wire import Grant", "lint-imports"),
        ("app/systems/sber/adapter.py", "from app.systems.loyalty.wire import Grant", "pytest tests/house -k system"),
        ("app/api/health.py", "from app.systems.loyalty.adapter import LoyaltyAdapter", "lint-imports"),
    ],
)
def test_the_import_contracts_hold_for_the_sixth(alone: SystemAlone, file: str, line: str, guard: str) -> None:
    """What its neighbours may not do to each other and others not to them is forbidden for it, without a word of it."""
    source = alone.copy.root / file
    before = source.read_text()
    assert alone.copy.run(f".venv/bin/{guard}").returncode == 0
    source.write_text(f"{before}\n{line}\n")
    try:
        assert alone.copy.run(f".venv/bin/{guard}").returncode == 1
    finally:
        source.write_text(before)


@pytest.mark.rule("ISO-3", "OAS-3", "RE-1", "RE-5", "ASYNC-1")
async def test_orders_pass_through_six_systems(tmp_path: Path, server_dsn: str, pg_dsn: str) -> None:
    """The step has its table and poller, fails visibly, is retried, and lets pass orders that were beyond it."""
    copy = Copy(tmp_path / "orders", {"ORDERS_PG__DSN": pg_dsn, "ORDERS_TEST_DSN": server_dsn})
    early = await order_that_waits_for_its_record(pg_dsn)
    for chapter in (QUESTION, SYSTEM, STEP, STAND_IN):
        await asyncio.to_thread(copy.follow, chapter)
    async with loyalty_running() as (loyalty, strangers):
        strangers.add("c-7")
        with processes(pg_dsn, copy.root) as run:
            service = await asyncio.to_thread(start, run, loyalty)
            async with HttpxAiohttpClient(base_url=service.url) as client:
                order = await reach(client, await place(client), "COMPLETED")
                stranger = await reach(client, await place(client, "c-7"), "REWARD_FAILED")
                strangers.clear()
                task = next(step["taskId"] for step in stranger["steps"] if step["task"] == "reward_task")
                await asyncio.to_thread(run.run, "tasks", "retry", "reward_task", str(task))
                await reach(client, stranger["orderId"], "COMPLETED")
                waited = await reach(client, early, "COMPLETED")
                metrics = (await client.get("/metrics")).text
    assert [(step["task"], step["status"]) for step in order["steps"]] == [(task, "COMPLETED") for task in SIX_TASKS]
    assert (stranger["final"], stranger["reason"]) == (True, "http_422: loyalty: grant: HTTP 422")
    assert [step["task"] for step in waited["steps"]] == FIVE_TASKS
    assert 'tasks_settled_total{outcome="completed",task="reward_task"} 2.0' in metrics
    assert 'task_due{task="reward_task"}' in metrics
    granted, refused, again = [r.headers["idempotency-key"] for r in loyalty.received if r.method == "POST"]
    assert granted != refused == again
    keeps_contract(copy.root / "app/systems/loyalty/openapi.yml", loyalty)
    shown = await asyncio.to_thread(copy.run, f".venv/bin/python -m app demo --once --dsn '{pg_dsn}'")
    assert shown.returncode == 0, shown.stdout


async def order_that_waits_for_its_record(dsn: str) -> int:
    """Let the service as it is bring an order to its last step, and stop it there."""
    async with sandbox_running() as sandbox, service_running(settings_for(dsn, sandbox.url)) as service:
        await sandbox.set("orderbook", mode="error")
        order_id = await service.place()
        await service.reach([order_id], "BOOKED")
    return order_id


def keeps_contract(file: Path, peer: Peer) -> None:
    """Raise unless the file allows every call that the system has received."""
    contract = OpenAPI.from_file_path(str(file))
    for call in peer.received:
        contract.validate_request(
            MockRequest("http://loyalty", call.method, call.path, headers=call.headers, data=call.body)
        )


@pytest.mark.parametrize("diff", [" b\n+c\n", "-x\n", " a\n b\n-b\n+c\n@@\n a\n+d\n"])
def test_a_block_that_does_not_fit_is_refused(diff: str) -> None:
    """A block for lines that are gone, or that stand in several places, is not applied."""
    with pytest.raises(ValueError, match="fits"):
        patched("a\nb\nb\na\n", diff)
