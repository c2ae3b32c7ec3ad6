"""The whole service over a few shared sessions: what it promises, it keeps there as well."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import pytest

from tests.faults.scene import Scene, Tally, scene_on
from tests.service import sandbox_running, service_running, settings_for

Environ = dict[str, str]


@pytest.fixture
async def scene(pooled: Environ, pg_dsn: str, record_property: Callable[[str, object], None]) -> AsyncIterator[Scene]:
    """Looks at the database from around PgBouncer."""

    def report(tally: Tally, orders: int) -> None:
        record_property("tally", {"orders": orders, **tally._asdict()})

    async with sandbox_running() as sandbox, scene_on(pg_dsn, sandbox, report) as scene:
        yield scene


@pytest.mark.slow
@pytest.mark.parametrize(("max_prepared_statements", "orders"), [(0, 200), (200, 40)])
async def test_two_replicas_bring_all_orders_to_their_end(scene: Scene, with_direct_way: Environ, orders: int) -> None:
    """Orders that come at once end as if PgBouncer were not there, and what is announced is heard around it."""
    environ = with_direct_way | {"ORDERS_TASKS__DEFAULT__POLL_INTERVAL": "20"}
    settings = settings_for(scene.dsn, scene.sandbox.url, environ)
    async with service_running(settings) as one, service_running(settings) as other:
        await asyncio.gather(*(scene.place(service.client, orders // 2) for service in (one, other)))
        assert scene.refused == []
        await scene.ends()
        assert (await one.client.get("/health/ready")).status_code == 200


async def test_without_a_direct_way_polling_does_the_work(
    scene: Scene, pooled: Environ, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody pretends to listen: one warning says so, and what falls due is found by looking."""
    often = {"ORDERS_TASKS__DEFAULT__POLL_INTERVAL": "0.2", "ORDERS_EVENTS__POLL_INTERVAL": "0.2"}
    async with service_running(settings_for(scene.dsn, scene.sandbox.url, pooled | often)) as service:
        await scene.place(service.client, 5)
        await scene.ends()
        assert not service.wiring.listener.loop.started
    lines = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(lines) == 1
    assert "pg.direct_dsn is not set" in lines[0]
