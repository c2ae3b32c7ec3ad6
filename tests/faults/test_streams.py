"""Clients follow their orders, and what they follow them at stops."""

import asyncio
from asyncio import to_thread
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from httpx_aiohttp import HttpxAiohttpClient

from tests.component.api.following import Stream, following
from tests.faults.scene import Scene
from tests.processes import processes
from tests.service import SYSTEMS

pytestmark = pytest.mark.slow

ENVIRON = {
    "ORDERS_CLIENT__INSURANCE__READ_TIMEOUT": "20",
    "ORDERS_CLIENT__INSURANCE__TOTAL_TIMEOUT": "25",
    "ORDERS_SHUTDOWN__LEAD": "0.5",
    "ORDERS_SHUTDOWN__DRAIN": "20",
    "ORDERS_SHUTDOWN__POLLER": "1",
}
WITHOUT_DRAIN = 10
"""Seconds that all of a shutdown but its drain may take: a stream that held it up would take the drain's twenty."""


@pytest.mark.rule("SHUT-HTTP", "SHUT-CFG")
async def test_open_streams_do_not_hold_up_a_stop(scene: Scene, tmp_path: Path) -> None:
    """SIGTERM at full backlog ends all streams at once, and the process in time; elsewhere they go on from there."""
    await scene.sandbox.set("insurance", mode="hang")
    with processes(scene.dsn, tmp_path) as run:
        run.environ |= scene.sandbox.environ | ENVIRON
        service = await to_thread(run.serve)
        async with HttpxAiohttpClient(base_url=service.url) as client, AsyncExitStack() as stack:
            await scene.place(client, 40)
            streams = [await stack.enter_async_context(following(client, id_)) for id_ in scene.placed]
            waiting = asyncio.create_task(
                client.get(f"/orders/{scene.placed[0]}", headers={"Prefer": "wait=30"}, timeout=30)
            )
            async with asyncio.timeout(20):
                while await scene.sandbox.calls("insurance") < 8 or not all(stream.events for stream in streams):
                    await asyncio.sleep(0.02)
            assert await to_thread(service.terminate, WITHOUT_DRAIN) == 0
            await until_ended(streams, 5)
            assert (await waiting).json()["status"] == "ACCEPTED"
        assert "Traceback" not in service.log.read_text()
        for system in SYSTEMS:
            await scene.sandbox.set(system, mode="ok")
        successor = await to_thread(run.serve)
        async with HttpxAiohttpClient(base_url=successor.url) as client, AsyncExitStack() as stack:
            rest = [await stack.enter_async_context(following(client, id_, Last_Event_ID="1")) for id_ in scene.placed]
            await until_ended(rest, 40)
        assert {tuple(stream.ids) for stream in rest} == {(2, 3, 4, 5, 6, 7)}
        await scene.ends()


async def until_ended(streams: list[Stream], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while not all(stream.ended for stream in streams):
            await asyncio.sleep(0.02)
