"""The operators' console, in a browser, on the whole service."""

import asyncio
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect
from sqlalchemy import text

from tests.browser.conftest import opened
from tests.component.api.test_auth import auth_environ, key_of
from tests.service import Sandbox, Service, service_running, settings_for

pytestmark = pytest.mark.slow


def card(page: Page, system: str) -> Locator:
    return page.locator(f"#system-{system}")


def state(page: Page, system: str) -> Locator:
    return card(page, system).locator(".state")


async def answer(page: Page, reason: str) -> None:
    """Give the reason that the dialog asks for."""
    await page.get_by_role("dialog").get_by_label("Reason").fill(reason)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_be_hidden()


async def audit(service: Service) -> list[dict[str, Any]]:
    return list((await service.client.get("/ops/actions")).json()["actions"])


@pytest.mark.rule("OBS-1", "CB-4")
async def test_an_outage_and_its_end_are_seen(browser: Browser, quick: Service, sandbox: Sandbox) -> None:
    """Calls are seen to fail, the breaker to open and, once the insurer is back, to close; other systems stand as they
    did, and the orders are completed."""
    async with opened(browser, quick, "/ops") as tab:
        await expect(state(tab.page, "insurance")).to_have_text("Closed")
        await sandbox.set("insurance", mode="error")
        orders = [await quick.place() for _ in range(6)]
        await expect(state(tab.page, "insurance")).to_have_text("Open")
        await expect(card(tab.page, "insurance").locator(".bad").first).to_contain_text("/s")
        await expect(state(tab.page, "sber")).to_have_text("Closed")
        await expect(tab.page.get_by_role("status")).to_contain_text("insurance: breaker")
        await sandbox.set("insurance", mode="ok")
        await expect(state(tab.page, "insurance")).to_have_text("Closed")
        await quick.reach(orders, "COMPLETED")
        assert tab.foreign == []
        assert tab.complaints == []


async def test_the_way_of_an_order_is_seen(browser: Browser, service: Service) -> None:
    """Its five steps and its events stand on the page that the form on the first one leads to."""
    await service.reach([order_id := await service.place()], "COMPLETED")
    async with opened(browser, service, "/ops") as tab:
        await tab.page.get_by_label("Order").fill(str(order_id))
        await tab.page.get_by_role("button", name="Show").click()
        await expect(tab.page.get_by_role("heading", level=1)).to_have_text(f"Order {order_id}")
        await expect(tab.page.locator(".steps .done")).to_have_count(5)
        await expect(tab.page.locator("#part")).to_contain_text("order.completed")
        assert tab.complaints == []


async def test_what_waits_is_found(browser: Browser, quick: Service, sandbox: Sandbox) -> None:
    """A count leads to the orders behind it and why they wait, and from there to each order."""
    await sandbox.set("insurance", mode="error")
    order_id = await quick.place()
    await quick.client.post("/ops/systems/insurance/isolate")
    async with opened(browser, quick, "/ops") as tab:
        await tab.page.get_by_role("link", name="1 waiting in order_confirmation_task").first.click()
        await expect(tab.page.get_by_role("heading", level=1)).to_have_text("order_confirmation_task: waiting")
        await expect(tab.page.locator("tbody tr .reason")).not_to_have_text("–")
        await tab.page.get_by_role("link", name=str(order_id), exact=True).click()
        await expect(tab.page.get_by_role("heading", level=1)).to_have_text(f"Order {order_id}")
        assert tab.complaints == []


async def test_a_wrong_number_is_told(browser: Browser, service: Service) -> None:
    """What can be no order's number stays in its box, with a hint; of one that is unknown the page says so."""
    async with opened(browser, service, "/ops") as tab:
        box = tab.page.get_by_label("Order", exact=True)
        for wrong in ("0", "first"):
            await box.fill(wrong)
            await tab.page.get_by_role("button", name="Show").click()
            assert await box.evaluate("box => box.matches(':invalid') && box.title") != ""
            assert tab.page.url.endswith("/ops")
        await box.fill("999")
        await tab.page.get_by_role("button", name="Show").click()
        await expect(tab.page.locator("#trouble")).to_have_text("There is no order 999.")
        await expect(box).to_be_visible()


@pytest.mark.rule("CB-6")
async def test_a_system_is_isolated_with_a_reason(browser: Browser, service: Service) -> None:
    """The reason is asked for, kept and shown as what it is, and a release undoes it."""
    reason = "their <script>alert(1)</script> says so"
    async with opened(browser, service, "/ops") as tab:
        await tab.page.get_by_role("button", name="Isolate sber").click()
        await answer(tab.page, reason)
        await expect(state(tab.page, "sber")).to_have_text("Isolated")
        await expect(tab.page.locator("#actions ~ table")).to_contain_text(reason)
        await tab.page.get_by_role("button", name="Release sber").click()
        await answer(tab.page, "they have repaired it")
        await expect(state(tab.page, "sber")).to_have_text("Closed")
        done = [(a["caller"], a["action"], a["target"], a["reason"]) for a in await audit(service)]
        assert done == [
            ("anonymous", "release", "sber", "they have repaired it"),
            ("anonymous", "isolate", "sber", reason),
        ]
        assert tab.complaints == []


async def test_a_failed_task_is_retried(browser: Browser, service: Service, sandbox: Sandbox) -> None:
    """It stands there with its reason, and gone it is once it was retried and its order has gone on."""
    await sandbox.set("receipt", outcome="FAILED")
    await service.reach([order_id := await service.place()], "RECEIPT_FAILED")
    await sandbox.set("receipt", outcome="ISSUED")
    async with opened(browser, service, "/ops") as tab:
        row = tab.page.locator("#failed ~ table tbody tr")
        await expect(row).to_contain_text("failed at the system")
        await row.get_by_role("button", name="Retry").click()
        await answer(tab.page, "the receipt service was repaired")
        await service.reach([order_id], "COMPLETED")
        await expect(row).to_have_count(0)
        await tab.page.goto(f"{tab.origin}/ops/orders/{order_id}")
        await expect(tab.page.locator("#part")).to_contain_text("the receipt service was repaired")


async def test_a_refusal_is_told(browser: Browser, service: Service, sandbox: Sandbox) -> None:
    """What was possible when the page was made and is not any more is refused in the dialog, which stays open."""
    await sandbox.set("insurance", mode="hang")
    order_id = await service.place()
    async with opened(browser, service, f"/ops/orders/{order_id}") as tab:
        await tab.page.get_by_role("button", name="Cancel").click()
        await service.client.post(f"/orders/{order_id}/cancel")
        await tab.page.get_by_role("dialog").get_by_label("Reason").fill("too late")
        await tab.page.keyboard.press("Enter")
        await expect(tab.page.get_by_role("dialog").get_by_role("alert")).to_contain_text("CANCELLED")
        await tab.page.keyboard.press("Escape")
        await expect(tab.page.get_by_role("dialog")).to_be_hidden()
        assert await audit(service) == []


async def test_a_keyboard_is_enough(browser: Browser, service: Service) -> None:
    """Tab reaches the button, Enter asks and answers, and the page's renewal leaves the focus where it is."""
    async with opened(browser, service, "/ops") as tab:
        page, button = tab.page, tab.page.get_by_role("button", name="Isolate insurance")
        await expect(button).to_be_visible()
        for _ in range(20):
            await page.keyboard.press("Tab")
            if await button.evaluate("button => button === document.activeElement"):
                break
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("dialog").get_by_label("Reason")).to_be_focused()
        await page.keyboard.press("Escape")
        await expect(button).to_be_focused()
        renewed = len(tab.requests) + 2
        while len(tab.requests) < renewed:
            await asyncio.sleep(0.1)
        await expect(button).to_be_focused()
        await page.keyboard.press("Enter")
        await page.keyboard.type("by keyboard")
        await page.keyboard.press("Enter")
        await expect(state(page, "insurance")).to_have_text("Isolated")


async def test_nothing_is_asked_for_while_nobody_looks(browser: Browser, service: Service) -> None:
    """A hidden tab is silent, and is up to date as soon as it is looked at."""
    async with opened(browser, service, "/ops") as tab:
        await expect(card(tab.page, "sber")).to_be_visible()
        hide = "Object.defineProperty(document, 'hidden', { configurable: true, get: () => %s })"
        await tab.page.evaluate(hide % "true")
        await asyncio.sleep(0.5)
        before = len(tab.requests)
        await asyncio.sleep(3)
        assert len(tab.requests) == before
        await service.client.post("/ops/systems/sber/isolate")
        await tab.page.evaluate(hide % "false" + "; document.dispatchEvent(new Event('visibilitychange'))")
        await expect(state(tab.page, "sber")).to_have_text("Isolated", timeout=1500)


async def test_the_page_says_when_it_is_old(browser: Browser, service: Service) -> None:
    """While no answer comes, what stands there is marked as old."""
    async with opened(browser, service, "/ops") as tab:
        await expect(card(tab.page, "sber")).to_be_visible()
        await tab.page.context.set_offline(True)
        await expect(tab.page.get_by_role("alert").first).to_contain_text("No answer since")
        await tab.page.context.set_offline(False)
        await expect(tab.page.locator("#trouble")).to_be_hidden()


async def test_the_key_is_asked_for(browser: Browser, pg_dsn: str, sandbox: Sandbox) -> None:
    """Without a key there is nothing to see, a key without the scope is told so, and the right one acts by its name."""
    async with (
        service_running(settings_for(pg_dsn, sandbox.url, auth_environ())) as service,
        opened(browser, service, "/ops") as tab,
    ):
        page = tab.page
        asked = page.get_by_label("API key")
        await expect(asked).to_be_visible()
        assert await page.locator("#part").inner_text() == ""
        await asked.fill(key_of("shop"))
        await page.keyboard.press("Enter")
        await expect(page.locator("#trouble")).to_contain_text("scope ops")
        await asked.fill(key_of("operator"))
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Isolate sber").click()
        await answer(page, "a drill")
        await expect(page.locator("#actions ~ table")).to_contain_text("operator")
        await page.reload()
        await expect(state(page, "sber")).to_have_text("Isolated")
        assert await page.context.cookies() == []
        await page.get_by_role("button", name="Forget key").click()
        await expect(asked).to_be_visible()
        await expect(card(page, "sber")).to_have_count(0)


CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const painted = (colours) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    const light = [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3)
      .map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
  };
  const behind = (element) =>
    element ? [...behind(element.parentElement), getComputedStyle(element).backgroundColor] : ["white"];
  const texts = [...document.querySelectorAll("body *")].filter((element) =>
    element.checkVisibility() && [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
  return texts.map((element) => {
    const ground = behind(element);
    const pair = [painted(ground), painted([...ground, getComputedStyle(element).color])].sort((a, b) => b - a);
    return [(pair[0] + 0.05) / (pair[1] + 0.05), element.textContent.trim().slice(0, 40)];
  }).filter(([ratio]) => ratio < 4.5);
}"""
"""Visible texts whose contrast is below what WCAG asks for."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_is_readable_on_a_phone(browser: Browser, quick: Service, sandbox: Sandbox, scheme: str) -> None:
    """In 360 pixels nothing sticks out, by day and by night every text has the contrast that WCAG asks for, and no
    control is without a name."""
    await sandbox.set("receipt", outcome="FAILED")
    await quick.reach([order_id := await quick.place(customerId="c" * 64)], "RECEIPT_FAILED")
    async with quick.wiring.database.engine.begin() as conn:
        await conn.execute(text("UPDATE receipt_creation_task SET last_error = :error"), {"error": "x" * 500})
    for system, action in (("sber", "isolate"), ("receipt", "reset")):
        await quick.client.post(f"/ops/systems/{system}/{action}", json={"reason": "y" * 500})
    phone = {"viewport": {"width": 360, "height": 740}, "color_scheme": scheme}
    listing = "/ops/tables/receipt_creation_task/failed"
    pages = (("/ops", "#system-sber"), (f"/ops/orders/{order_id}", ".steps"), (listing, ".acts"))
    for path, sign in pages:
        async with opened(browser, quick, path, **phone) as tab:
            await expect(tab.page.locator(sign)).to_be_visible()
            assert await tab.page.evaluate("document.documentElement.scrollWidth") == 360
            assert await tab.page.evaluate(CONTRAST) == []
            dark = await tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert dark == {"light": "rgb(245, 246, 248)", "dark": "rgb(18, 22, 28)"}[scheme]
            unnamed = "[...document.querySelectorAll('button, input')].filter((c) => !c.labels?.length && !c.innerText)"
            assert await tab.page.evaluate(f"{unnamed}.filter((c) => c.checkVisibility()).map((c) => c.id)") == []
