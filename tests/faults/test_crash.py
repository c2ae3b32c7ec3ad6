"""Replicas that are killed or stand still while they hold leases; real processes over one database."""

import asyncio
import signal
import sys
from asyncio import to_thread
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from httpx_aiohttp import HttpxAiohttpClient

from tests.faults.proxy import proxy_to_url
from tests.faults.scene import Scene
from tests.faults.short import LEASE, SHORT
from tests.processes import ROOT, Process, Processes, processes
from tests.service import service_running, settings_for

pytestmark = pytest.mark.slow

TEN_AT_ONCE = {"ORDERS_CLIENT__INSURANCE__MAX_CONCURRENT": "10", "ORDERS_PG__POOL__MAX": "64"}

NOTE = """
CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN INSERT INTO second_claim VALUES (clock_timestamp()); RETURN NEW; END $$"""
NOTE_SECOND_CLAIMS = """
CREATE TRIGGER note AFTER UPDATE ON order_confirmation_task FOR EACH ROW
WHEN (NEW.lease_token = 2) EXECUTE FUNCTION note()"""


@pytest.fixture
async def run(scene: Scene, tmp_path: Path) -> AsyncIterator[Processes]:
    with processes(scene.dsn, tmp_path) as run:
        run.environ |= SHORT | scene.sandbox.environ
        yield run


def client(process: Process) -> HttpxAiohttpClient:
    return HttpxAiohttpClient(base_url=process.url)


async def two(run: Processes) -> tuple[Process, Process]:
    """Two replicas, started side by side."""
    first, second = await asyncio.gather(to_thread(run.serve), to_thread(run.serve))
    return first, second


async def leases_lost(process: Process) -> float:
    async with client(process) as http:
        lines = (await http.get("/metrics")).text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("task_lease_lost_total"))


async def test_the_leases_of_a_killed_replica_run_out(scene: Scene, run: Processes) -> None:
    """Ten rows of a killed replica stay its own until their lease is over; then another one completes them all."""
    run.environ |= TEN_AT_ONCE
    first, second = await two(run)
    second.pause()
    await scene.sandbox.set("insurance", mode="hang")
    async with client(first) as http:
        await scene.place(http, 10)
    await scene.until("SELECT count(*) = 10 FROM order_confirmation_task WHERE retry_count = 1")
    first.kill()
    await scene.sandbox.set("insurance", mode="ok")
    second.resume()
    left = "SELECT extract(epoch FROM min(next_attempt_at) - now())::float8 FROM order_confirmation_task"
    await asyncio.sleep(await scene.value(left) - 0.5)
    assert await scene.value("SELECT max(lease_token) FROM order_confirmation_task") == 1
    await scene.ends()


async def test_a_pod_that_comes_back_is_nobody_special(scene: Scene, run: Processes) -> None:
    """A replica killed and started at once under the same host name and port waits for its predecessor's leases."""
    run.environ |= TEN_AT_ONCE
    first = await to_thread(run.serve)
    await scene.sandbox.set("insurance", mode="hang")
    async with client(first) as http:
        await scene.place(http, 10)
    await scene.until("SELECT count(*) = 10 FROM order_confirmation_task WHERE retry_count = 1")
    lease_ends = await scene.value("SELECT min(next_attempt_at) FROM order_confirmation_task")
    first.kill()
    await scene.sandbox.set("insurance", mode="ok")
    for statement in ("CREATE TABLE second_claim (at timestamptz)", NOTE, NOTE_SECOND_CLAIMS):
        await scene.rows(statement)
    await to_thread(run.serve, port=int(first.url.rpartition(":")[2]))
    await scene.ends()
    assert await scene.value("SELECT min(at) FROM second_claim") >= lease_ends


async def stopped_in_a_call(scene: Scene, run: Processes) -> tuple[Process, Process]:
    """Two replicas, the first of which stands still in the middle of its call for an order."""
    run.environ |= {"ORDERS_TASKS__ORDER_CONFIRMATION_TASK__MAX_ATTEMPTS": "2"}
    first, second = await two(run)
    second.pause()
    await scene.sandbox.set("insurance", mode="slow", latency_ms=600)
    async with client(first) as http:
        await scene.place(http)
    while not (await scene.sandbox.control("insurance"))["counters"]["calls"]["POST /applications"]:
        await asyncio.sleep(0.01)
    first.pause()
    return first, second


async def loses_its_lease(process: Process) -> None:
    async with asyncio.timeout(15):
        while await leases_lost(process) < 1:
            await asyncio.sleep(0.1)


async def test_a_replica_that_stood_still_past_its_lease(scene: Scene, run: Processes) -> None:
    """It comes back when another one has done its row, and changes nothing any more."""
    first, second = await stopped_in_a_call(scene, run)
    await scene.sandbox.set("insurance", mode="ok")
    second.resume()
    await scene.until("SELECT status = 'COMPLETED' FROM orders")
    told = await scene.rows("SELECT event_id, type FROM outbox_event ORDER BY sequence")
    first.resume()
    await loses_its_lease(first)
    assert await scene.rows("SELECT event_id, type FROM outbox_event ORDER BY sequence") == told
    await scene.ends()


async def test_a_replica_that_stood_still_past_an_operators_reset(scene: Scene, run: Processes) -> None:
    """It comes back to a row that has failed and was given all its attempts again, and is refused all the same."""
    first, second = await stopped_in_a_call(scene, run)
    await scene.sandbox.set("insurance", mode="error")
    second.resume()
    await scene.until("SELECT status = 'FAILED' FROM order_confirmation_task")
    second.pause()
    await scene.sandbox.set("insurance", mode="ok")
    task_id = await scene.value("SELECT task_id FROM order_confirmation_task")
    await to_thread(run.run, "tasks", "retry", "order_confirmation_task", str(task_id))
    first.resume()
    await loses_its_lease(first)
    second.resume()
    await scene.ends()


async def test_no_two_calls_are_under_way_for_one_row(scene: Scene) -> None:
    """Two replicas and an insurance that takes longer than the lease: its row is never asked for twice at a time."""
    async with proxy_to_url(scene.sandbox.environ["ORDERS_CLIENT__INSURANCE__BASE_URL"]) as (insurance, url):
        settings = settings_for(scene.dsn, scene.sandbox.url, SHORT | {"ORDERS_CLIENT__INSURANCE__BASE_URL": url})
        async with service_running(settings) as service, service_running(settings, "worker"):
            await scene.sandbox.set("insurance", mode="slow", latency_ms=int(LEASE * 1000) + 1000)
            await scene.place(service.client)
            await scene.until("SELECT lease_token > 4 FROM order_confirmation_task")
            assert insurance.opened > 2
            assert insurance.most == 1
            await scene.sandbox.set("insurance", mode="ok")
            await scene.ends()


async def test_a_row_that_kills_its_worker_fails_in_the_end(scene: Scene, run: Processes) -> None:
    """A process that dies of a row, whenever it is started again, ends with the row failed after 20 claims."""
    async with service_running(settings_for(scene.dsn, scene.sandbox.url), "api") as intake:
        await scene.place(intake.client, 4)
        (poison,) = await scene.place(intake.client, customerId="poison")
    await scene.rows("UPDATE order_confirmation_task SET retry_count = 18 WHERE order_id = :id", id=poison)
    deaths = 0
    failed = asyncio.create_task(scene.until("SELECT status <> 'ACCEPTED' FROM orders WHERE id = :id", 60, id=poison))
    while not failed.done():
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.faults.poisoned", "serve", "--port", "0"),
            env=run.environment(),
            cwd=ROOT,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        dying = asyncio.create_task(process.wait())
        await asyncio.wait({dying, failed}, return_when=asyncio.FIRST_COMPLETED)
        deaths += process.returncode == -signal.SIGKILL
    await failed
    await scene.ends(status=("COMPLETED", "CONFIRMATION_FAILED"), failed=4 * 2)
    process.terminate()
    await dying
    assert deaths == 2
    reason = await scene.value("SELECT reason FROM orders WHERE id = :id", id=poison)
    assert reason == "lost: no report came back from the last of 20 attempts"
