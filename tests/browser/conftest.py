"""Chromium, as Debian ships it, and what its pages did."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.async_api import Browser, Page, async_playwright

from tests.service import Sandbox, Service, service_running, settings_for
from tests.tools import installed

QUICK = {"ORDERS_CLIENT__DEFAULT__BREAKER__OPEN_SECONDS": "2", "ORDERS_TASKS__DEFAULT__BACKOFF_CAP": "1"}


@dataclass
class Tab:
    """A page of the service, all requests that it made, and what the browser complained about."""

    page: Page
    origin: str
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @property
    def foreign(self) -> list[str]:
        own = (f"{self.origin}/", "data:", f"blob:{self.origin}/")
        return [url for url in self.requests if not url.startswith(own)]


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    chromium = installed("chromium", "apt-get install chromium")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest.fixture
async def quick(pg_dsn: str, sandbox: Sandbox) -> AsyncIterator[Service]:
    """A service whose breakers and tasks try again soon."""
    async with service_running(settings_for(pg_dsn, sandbox.url, QUICK)) as service:
        yield service


@asynccontextmanager
async def opened(browser: Browser, service: Service, path: str, **context: Any) -> AsyncIterator[Tab]:
    """A tab at `path`; nothing may complain before it is closed."""
    origin = str(service.client.base_url).rstrip("/")
    page = await browser.new_page(**context)
    tab = Tab(page, origin)
    page.set_default_timeout(15_000)
    page.on("request", lambda request: tab.requests.append(request.url))
    page.on("console", lambda message: tab.complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    await page.goto(origin + path)
    try:
        yield tab
    finally:
        await page.close()
