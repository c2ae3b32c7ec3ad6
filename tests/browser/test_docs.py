"""The documentation's pages, in a browser and without the internet."""

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.browser.conftest import opened
from tests.component.api.test_auth import auth_environ, key_of
from tests.service import Sandbox, Service, service_running, settings_for

pytestmark = pytest.mark.slow


async def place_order(page: Page) -> int:
    """Try out what places an order, with the body that the page suggests."""
    operation = page.locator("#operations-orders-place_order")
    await operation.locator(".opblock-summary").click()
    return await execute(operation)


async def execute(operation: Locator) -> int:
    """Send what stands there; returns the order's id."""
    async with operation.page.expect_response("**/orders") as answer:
        await operation.get_by_role("button", name="Execute").click()
    await expect(operation.locator(".live-responses-table .response .response-col_status")).to_contain_text("202")
    return int((await (await answer.value).json())["orderId"])


async def test_try_it_out_places_an_order(browser: Browser, service: Service) -> None:
    """The page comes from the service alone, its own policy lets it work, and the order goes its way."""
    async with opened(browser, service, "/docs") as tab:
        order_id = await place_order(tab.page)
        await service.reach([order_id], "COMPLETED")
        assert tab.foreign == []
        assert tab.complaints == []


async def test_executing_twice_places_two_orders(browser: Browser, service: Service) -> None:
    """No key, and nothing else that is one request's own, is filled in: a second order is a second one."""
    async with opened(browser, service, "/docs") as tab:
        assert await place_order(tab.page) == 1
        operation = tab.page.locator("#operations-orders-place_order")
        filled_in = await operation.locator(".parameters input").evaluate_all("all => all.map((input) => input.value)")
        assert filled_in == ["", ""]
        body = operation.locator("textarea.body-param__text")
        await body.fill((await body.input_value()).replace("c-42", "c-43"))
        assert await execute(operation) == 2
        assert tab.complaints == []


async def test_it_works_with_an_api_key(browser: Browser, pg_dsn: str, sandbox: Sandbox) -> None:
    """The key that is given under Authorize goes along with each request."""
    async with (
        service_running(settings_for(pg_dsn, sandbox.url, auth_environ())) as service,
        opened(browser, service, "/docs") as tab,
    ):
        page = tab.page
        await page.get_by_role("button", name="Authorize").first.click()
        dialog = page.locator(".auth-container")
        await dialog.locator("input").fill(key_of("shop"))
        await dialog.get_by_role("button", name="Apply credentials").click()
        await dialog.get_by_role("button", name="Close").click()
        assert await place_order(page) == 1
        assert tab.foreign == []
        assert tab.complaints == []


async def test_redoc_is_complete(browser: Browser, service: Service) -> None:
    """It shows every operation and finds one by its words."""
    async with opened(browser, service, "/redoc") as tab:
        await expect(tab.page.get_by_role("heading", name="Place Order")).to_be_visible()
        await tab.page.get_by_placeholder("Search...").fill("isolate")
        await expect(tab.page.locator("[data-role='search:results']")).to_contain_text("Isolate System")
        assert tab.foreign == []
        assert tab.complaints == []
