from collections.abc import AsyncIterator

import pytest

from tests.service import Sandbox, Service, sandbox_running, service_running, settings_for


@pytest.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    async with sandbox_running() as sandbox:
        yield sandbox


@pytest.fixture
async def service(pg_dsn: str, sandbox: Sandbox) -> AsyncIterator[Service]:
    async with service_running(settings_for(pg_dsn, sandbox.url)) as service:
        yield service
