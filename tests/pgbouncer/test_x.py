import asyncio

import pytest

from tests.service import *


@pytest.mark.parametrize("max_prepared_statements", [0, 200])
async def test_x(through, pg_dsn):
    async with sandbox_running() as sandbox:
        s = settings_for(through, sandbox.url, {"ORDERS_PG__PGBOUNCER": "true", "ORDERS_PG__DIRECT_DSN": pg_dsn})
        async with service_running(s) as service:
            ids = await asyncio.gather(*(service.place() for _ in range(50)))
            await service.reach(ids, "COMPLETED")
