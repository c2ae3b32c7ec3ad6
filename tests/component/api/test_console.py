"""The console as it leaves the service; what a browser makes of it is in tests/browser."""

import json
import re
from html.parser import HTMLParser
from urllib.parse import unquote

import pytest
from sqlalchemy import text

from app.tasks import queue, standing
from tests.component.api.test_auth import auth_environ, bearing
from tests.service import Sandbox, Service, service_running, settings_for

HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7 * 7 }}"


class Tags(HTMLParser):
    """The names of a page's elements, and its attributes that run scripts."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.handlers: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.handlers += [name for name, value in attrs if name.startswith("on") or "javascript:" in (value or "")]


async def test_a_page_holds_nothing_until_a_key_is_there(pg_dsn: str, sandbox: Sandbox) -> None:
    """The frame is everybody's and the same for all; what goes into it needs the scope."""
    async with service_running(settings_for(pg_dsn, sandbox.url, auth_environ())) as service:
        for frame in ("/ops", "/ops/orders/1", "/ops/tables/payment_task/due"):
            bare = await service.client.get(frame)
            assert bare.status_code == 200
            assert bare.text == (await service.client.get(frame, headers=bearing("operator"))).text
            assert "sber" not in bare.text
        for part in ("/ops/board", "/ops/orders/1/journey", "/ops/tables/payment_task/due/tasks"):
            assert (await service.client.get(part)).status_code == 401
            assert (await service.client.get(part, headers=bearing("shop"))).status_code == 403
        board = await service.client.get("/ops/board", headers=bearing("operator"))
        assert "sber" in board.text


async def test_nothing_from_outside_becomes_markup(service: Service, sandbox: Sandbox) -> None:
    """Reasons, errors and names are shown letter by letter, whoever they come from."""
    await sandbox.set("receipt", outcome="FAILED")
    order_id = await service.place(customerId=HOSTILE[:64])
    await service.reach([order_id], "RECEIPT_FAILED")
    await service.client.post("/ops/systems/sber/reset", json={"reason": HOSTILE})
    async with service.wiring.database.engine.begin() as conn:
        values = {
            "hostile": HOSTILE,
            "data": json.dumps({"reason": HOSTILE}),
            "details": json.dumps({HOSTILE: HOSTILE}),
        }
        for statement in (
            "UPDATE receipt_creation_task SET last_error = :hostile",
            "UPDATE orders SET reason = :hostile, details = CAST(:details AS jsonb)",
            "UPDATE outbox_event SET data = CAST(:data AS jsonb), type = :hostile, traceparent = '00-' || :hostile",
            "UPDATE outbox_event SET status = 'PARKED', last_error = :hostile",
            "INSERT INTO operator_action (caller, action, target, replica) VALUES (:hostile, 'retry', 's', :hostile)",
        ):
            await conn.execute(text(statement), values)
    listing = "/ops/tables/receipt_creation_task/failed/tasks"
    for path in ("/ops/board", f"/ops/orders/{order_id}/journey", listing):
        answer = await service.client.get(path)
        assert answer.status_code == 200, answer.text
        tags = Tags(answer.text)
        assert "alert(1)" in answer.text
        assert "{{ 7 * 7 }}" in answer.text
        assert tags.names & {"script", "img", "style"} == set()
        assert tags.handlers == []


async def test_a_page_runs_its_own_scripts_only(service: Service, subtests: pytest.Subtests) -> None:
    """Its policy names no other host, allows no script that is not known, and nobody may frame it."""
    for path in ("/ops", "/ops/board", "/docs", "/redoc"):
        with subtests.test(path=path):
            answer = await service.client.get(path)
            rules = dict(rule.split(" ", 1) for rule in answer.headers["content-security-policy"].split("; "))
            assert rules["default-src"] == "'none'"
            assert re.fullmatch(r"'self'( 'sha256-[\w+/=]+')*", rules["script-src"])
            assert rules["connect-src"] == "'self'"
            assert rules["frame-ancestors"] == "'none'"
            assert "http" not in answer.headers["content-security-policy"]
            assert answer.headers["x-content-type-options"] == "nosniff"
            if path.startswith("/ops"):
                assert "unsafe" not in answer.headers["content-security-policy"]
                assert answer.headers["cache-control"] == "no-store"


async def test_what_a_page_loads_is_kept_by_browsers(service: Service, subtests: pytest.Subtests) -> None:
    """Everything comes from here, under an address that changes with its content; an old address is not kept."""
    for page in ("/ops", "/docs", "/redoc"):
        with subtests.test(page=page):
            addresses = re.findall(r'(?:src|href)="(/[^"]+\?v=[^"]+)"', (await service.client.get(page)).text)
            assert addresses
            for address in addresses:
                answer = await service.client.get(address)
                assert answer.status_code == 200
                assert "immutable" in answer.headers["cache-control"]
                old = await service.client.get(address.partition("?")[0] + "?v=old")
                assert (old.content, old.headers["cache-control"]) == (answer.content, "no-cache")


async def test_it_works_behind_a_prefix(pg_dsn: str, sandbox: Sandbox) -> None:
    """Where a proxy takes a prefix away, every address of the pages has it."""
    environ = {"ORDERS_API__PUBLIC_URL": "https://shop.example/o"}
    async with service_running(settings_for(pg_dsn, sandbox.url, environ)) as service:
        for path in ("/ops", "/ops/board", "/docs", "/redoc"):
            html = (await service.client.get(path)).text
            addresses = re.findall(r"""(?:src|href|data-[a-z]+|spec-url|url)(?:=|: )["'](/[^"']*)["']""", html)
            assert addresses
            assert [address for address in addresses if not address.startswith("/o/")] == []


async def test_the_board_outlives_the_database(sandbox: Sandbox) -> None:
    """What this replica knows by itself is shown, and that the rest cannot be had."""
    dsn = "postgresql://orders@127.0.0.1:1/orders"
    async with service_running(settings_for(dsn, sandbox.url)) as service:
        answer = await service.client.get("/ops/board")
        assert answer.status_code == 200
        assert "system-sber" in answer.text
        assert "the database cannot be reached" in answer.text


async def test_an_order_that_is_not_there(service: Service) -> None:
    """Whatever was typed, there is a page, and what is fetched into it says that there is no such order."""
    for typed in ("999", "0", "first", "9" * 19, "9" * 30, "%3Fx", "%22%3E"):
        page = await service.client.get(f"/ops/orders/{typed}")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        (part,) = re.findall(r'data-part="([^"]*)"', page.text)
        missing = await service.client.get(part)
        assert (missing.status_code, missing.json()["detail"]) == (404, f"There is no order {unquote(typed)}.")


async def test_an_orders_facts_are_in_words(service: Service) -> None:
    """What the systems answered stands in the order of the journey, under names that are no program's."""
    await service.reach([order_id := await service.place()], "COMPLETED")
    html = (await service.client.get(f"/ops/orders/{order_id}/journey")).text
    facts = ["Customer", "Amount", "Application", "Payment", "Payment page", "Receipt", "Fiscal number"]
    names = re.findall(r"<dt>(.*?)</dt>", html)
    assert names[:9] == [*facts, "Booking", "Tickets"]


async def test_a_replica_without_workers_shows_no_breakers(pg_dsn: str, sandbox: Sandbox) -> None:
    """Its board says whose breakers count, and offers no change of its own; health and tables stay."""
    async with service_running(settings_for(pg_dsn, sandbox.url), "api") as service:
        await service.place()
        board = (await service.client.get("/ops/board")).text
        assert "each worker" in board
        assert board.count(">not called<") == 5
        assert "Isolate" not in board
        assert "Closed" not in board
        assert board.count("Probed") == 5
        assert 'href="/ops/tables/order_confirmation_task/due"' in board


async def test_the_tasks_behind_a_count_are_listed(service: Service) -> None:
    """Each count leads to its tasks, by their time and no more than fifty: whose they are, and why they wait."""
    async with service.wiring.database.engine.begin() as conn:
        await conn.execute(
            text(
                "WITH o AS (INSERT INTO orders (customer_id, items, status)"
                " SELECT 'c', '[]', 'CANCELLED' FROM generate_series(1, 60) RETURNING id)"
                " INSERT INTO booking_task (order_id, status, next_attempt_at, payload, last_error, retry_count)"
                " SELECT id, CASE WHEN id <= 2 THEN 'FAILED' ELSE 'PENDING' END,"
                " now() + make_interval(hours => 100 - id::int), '{}', 'circuit_open', 3 FROM o"
            )
        )

    async def listed(which: str) -> tuple[str, list[int]]:
        html = (await service.client.get(f"/ops/tables/booking_task/{which}/tasks")).text
        return html, [int(found) for found in re.findall(r'<a href="/ops/orders/(\d+)">', html)]

    board = (await service.client.get("/ops/board")).text
    assert 'href="/ops/tables/booking_task/waiting">58<' in board
    assert 'href="/ops/tables/booking_task/failed">2<' in board
    html, orders = await listed("waiting")
    assert orders == list(range(60, 10, -1))
    assert "the first 50" in html
    assert "circuit_open" in html
    assert "in 1 d" in html
    html, orders = await listed("failed")
    assert orders == [2, 1]
    assert "Retry" in html
    assert (await listed("due"))[1] == []
    assert (await service.client.get("/ops/tables/orders/due/tasks")).status_code == 404


async def test_the_figures_are_found_in_indexes(service: Service) -> None:
    """However many rows have finished, none of them is read for the board: neither to count nor to find what failed."""
    async with service.wiring.database.engine.begin() as conn:
        await conn.execute(
            text(
                "WITH o AS (INSERT INTO orders (customer_id, items, status)"
                " SELECT 'c', '[]', 'COMPLETED' FROM generate_series(1, 20000) RETURNING id)"
                " INSERT INTO payment_task (order_id, status, next_attempt_at, payload)"
                " SELECT id, CASE WHEN id % 5000 = 0 THEN 'FAILED' ELSE 'COMPLETED' END, now(), '{}' FROM o"
            )
        )
        await conn.execute(text("ANALYZE payment_task"))
        plans = []
        for statement in (
            standing._STANDING.format(table="payment_task"),
            queue._LISTING.format(table="payment_task", statuses="'FAILED'"),
            standing._OPEN.format(table="payment_task", side=">"),
        ):
            explain = text(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}")
            plans.append(
                json.dumps(json.loads((await conn.execute(explain, {"most": 10, "before": 2**62})).scalar_one()))
            )
        (figures,) = await standing.standing(conn, ["payment_task"], 1000)
    for plan in plans:
        assert "Seq Scan" not in plan
        assert re.search("ix_payment_task_failed|ix_pt_due", plan)
        assert re.findall(r'"Rows Removed by Filter": ([1-9]\d*)', plan) == []
    assert (figures.due, figures.waiting, figures.failed, figures.oldest) == (0, 0, 4, 0)


async def test_standing_counts_up_to_its_limit(service: Service) -> None:
    """Due, waiting and failed rows are told apart, and the count ends where it is told to."""
    async with service.wiring.database.engine.begin() as conn:
        await conn.execute(
            text(
                "WITH o AS (INSERT INTO orders (customer_id, items, status)"
                " SELECT 'c', '[]', 'CANCELLED' FROM generate_series(1, 12) RETURNING id)"
                " INSERT INTO booking_task (order_id, status, next_attempt_at, payload)"
                " SELECT id, CASE WHEN id <= 4 THEN 'FAILED' ELSE 'PENDING' END,"
                " CASE WHEN id <= 7 THEN now() - interval '90 s' ELSE now() + interval '1 h' END, '{}' FROM o"
            )
        )
        (exact,) = await standing.standing(conn, ["booking_task"], 100)
        (cut,) = await standing.standing(conn, ["booking_task"], 2)
        await conn.rollback()
    assert (exact.due, exact.waiting, exact.failed) == (3, 5, 4)
    assert 89 < exact.oldest < 95
    assert (cut.due, cut.waiting, cut.failed) == (2, 2, 2)
