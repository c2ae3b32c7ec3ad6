"""Replicas come and go while orders are placed."""

import asyncio
import signal
import sys
import uuid
from asyncio import to_thread
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import httpx
import pytest
from httpx_aiohttp import HttpxAiohttpClient

from tests.faults.scene import Scene
from tests.processes import Process, processes
from tests.service import ORDER

pytestmark = pytest.mark.slow

ORDERS, COMPLETED, CLIENTS = 1000, 200, 8


@pytest.mark.parametrize("sign", ["", "serving"])
async def test_a_stop_in_the_first_moments(pg_dsn: str, tmp_path: Path, sign: str) -> None:
    """SIGTERM up to half a second after the process began, or began to serve, ends it without a trace of trouble."""
    with processes(pg_dsn, tmp_path) as run:
        environ = run.environment() | {"ORDERS_SHUTDOWN__LEAD": "0"}

    async def start_and_stop(after: float) -> None:
        log = tmp_path / f"{after}.log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "app", "serve", "--port", "0"), env=environ, stdout=output, stderr=output
            )
        try:
            async with asyncio.timeout(60):
                while sign not in log.read_text():
                    await asyncio.sleep(0.02)
                await asyncio.sleep(after)
                process.terminate()
                await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
            code = await process.wait()
        assert code in {0, 128 + signal.SIGTERM, -signal.SIGTERM}, log.read_text()
        assert "Traceback" not in log.read_text()

    async with asyncio.TaskGroup() as group:
        for after in (0.0, 0.1, 0.25, 0.5):
            group.create_task(start_and_stop(after))


async def test_a_rolling_restart(scene: Scene, tmp_path: Path) -> None:
    """A thousand orders are placed while each of three replicas is replaced: every one of them is done once."""
    with processes(scene.dsn, tmp_path) as run:
        run.environ |= scene.sandbox.environ | {"ORDERS_SHUTDOWN__LEAD": "0.5"}
        replicas = list(await asyncio.gather(*(to_thread(run.serve) for _ in range(3))))
        placing = asyncio.create_task(place_all(scene, replicas))
        for place in range(3):
            successor = await to_thread(run.serve)
            assert await to_thread(replicas[place].terminate) == 0
            replicas[place] = successor
        await placing
        await scene.ends(60, status=("COMPLETED", "REJECTED"))
        assert await asyncio.gather(*(to_thread(replica.terminate) for replica in replicas)) == [0, 0, 0]


async def place_all(scene: Scene, replicas: list[Process]) -> None:
    """Place the orders, a few at a time, in turn at whatever replicas there are; most of them will be rejected."""
    turn = count()
    async with HttpxAiohttpClient() as client:

        async def place_some() -> None:
            while len(scene.placed) < ORDERS:
                scene.placed.append(await place_one(client, replicas, turn))
                if len(scene.placed) == COMPLETED:
                    await scene.sandbox.set("insurance", outcome="REJECTED")
                await asyncio.sleep(0.08)

        async with asyncio.TaskGroup() as group:
            for _ in range(CLIENTS):
                group.create_task(place_some())


async def place_one(client: httpx.AsyncClient, replicas: list[Process], turn: Iterator[int]) -> int:
    """Place an order, again under the same key as long as there is no answer, or one that says to come again."""
    key = {"Idempotency-Key": str(uuid.uuid4())}
    while True:
        url = f"{replicas[next(turn) % len(replicas)].url}/orders"
        with suppress(httpx.TransportError):
            answer = await client.post(url, json=ORDER, headers=key)
            if answer.status_code == 202:
                return int(answer.json()["orderId"])
            assert answer.status_code in {409, 503}
        await asyncio.sleep(0.05)
