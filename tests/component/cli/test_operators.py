"""What operators look at and change from the command line."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import uuid4

import asyncpg
import pytest

from tests.commands import run
from tests.component.cli.terminal import Terminal
from tests.conftest import run as run_apart
from tests.service import Sandbox, Service, service_running, settings_for

T = TypeVar("T")

ITEMS = '[{"sku": "TICKET", "quantity": 2, "price": {"amount": "1990.00", "currency": "RUB"}}]'
PAYLOAD = '{"key": "k"}'


class Rows:
    """What stands in the database."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn

    def order(self, status: str = "ACCEPTED", **tasks: str) -> int:
        """An order, with a task of the given status in each named table."""

        async def insert(conn: Any) -> int:
            order_id = await conn.fetchval(
                "INSERT INTO orders (customer_id, items, status) VALUES ('c-42', $1, $2) RETURNING id", ITEMS, status
            )
            for table, task_status in tasks.items():
                await conn.execute(
                    f"INSERT INTO {table} (order_id, status, retry_count, next_attempt_at, last_error, payload)"
                    " VALUES ($1, $2, 3, now() + interval '1 hour', 'timeout: no answer', $3)",
                    *(order_id, task_status, PAYLOAD),
                )
            return int(order_id)

        return self._do(insert)

    def event(self, order_id: int, status: str) -> str:
        """An order's first event."""

        async def insert(conn: Any) -> str:
            return str(
                await conn.fetchval(
                    "INSERT INTO outbox_event (order_id, sequence, type, data, status, attempts, last_error)"
                    " VALUES ($1, 1, 'order.accepted', '{}', $2, 20, 'refused: 410') RETURNING event_id",
                    *(order_id, status),
                )
            )

        return self._do(insert)

    def execute(self, query: str, *values: object) -> None:
        self._do(lambda conn: conn.execute(query, *values))

    def one(self, query: str) -> Any:
        return self._do(lambda conn: conn.fetchval(query))

    def _do(self, work: Callable[[Any], Awaitable[T]]) -> T:
        found: list[T] = []

        async def connected() -> None:
            conn = await asyncpg.connect(self._dsn)
            try:
                found.append(await work(conn))
            finally:
                await conn.close()

        run_apart(connected())
        return found[0]


@pytest.fixture
def rows(pg_dsn: str) -> Rows:
    return Rows(pg_dsn)


def test_orders_are_found_by_status_and_customer(operator: Terminal, rows: Rows) -> None:
    """The list is narrowed down, and says the same to people and to programs."""
    first, second = rows.order(), rows.order("COMPLETED")
    assert [order["orderId"] for order in operator.run("orders", "list", "--json").json] == [second, first]
    (found,) = operator.run("orders", "list", "--status", "COMPLETED", "--customer", "c-42", "--json").json
    assert (found["orderId"], found["total"]) == (second, {"amount": "3980.00", "currency": "RUB"})
    assert operator.run("orders", "list", "--customer", "nobody", "--json").json == []
    assert operator.run("orders", "list", "--customer", "nobody").out == "none\n"
    shown = operator.run("orders", "list", "--limit", "1").out
    assert "3980.00 RUB" in shown
    assert "ACCEPTED" not in shown


def test_an_order_is_shown_with_its_steps(operator: Terminal, rows: Rows) -> None:
    """Its JSON is that of the API; the table has the last error in full."""
    order = rows.order("CONFIRMED", order_confirmation_task="COMPLETED", payment_task="PENDING")
    shown = operator.run("orders", "show", str(order))
    assert f"order {order} is CONFIRMED" in shown.out
    assert "timeout: no answer" in shown.out
    view = operator.run("orders", "show", str(order), "--json").json
    assert [(step["system"], step["status"]) for step in view["steps"]] == [
        ("insurance", "COMPLETED"),
        ("sber", "PENDING"),
    ]
    assert operator.run("orders", "show", "77").code == 3


def test_an_order_is_cancelled_once_and_the_reason_is_kept(operator: Terminal, rows: Rows) -> None:
    """Who cancelled it and why can be read later, whoever asks."""
    order = rows.order("ACCEPTED", order_confirmation_task="PENDING")
    done = operator.run("orders", "cancel", str(order), "--reason", "asked for by phone")
    assert (done.code, done.out) == (0, f"order {order} is CANCELLED\n")
    again = operator.run("orders", "cancel", str(order))
    assert (again.code, again.err) == (3, f"order {order} is CANCELLED and cannot be cancelled; nothing was changed\n")
    (action,) = operator.run("actions", "--json").json
    assert (action["action"], action["reason"]) == ("cancel", "asked for by phone")
    assert action["caller"].endswith("command line")
    assert "asked for by phone" in operator.run("actions").out


@pytest.mark.parametrize("status", ["PENDING", "FAILED"])
def test_a_task_is_given_up_with_its_order(status: str, operator: Terminal, rows: Rows) -> None:
    """A task that waits, or waits for an operator, is withdrawn by cancelling the order."""
    rows.order("ACCEPTED" if status == "PENDING" else "CONFIRMATION_FAILED", order_confirmation_task=status)
    done = operator.run("tasks", "cancel", "order_confirmation_task", "1", "--json")
    assert (done.code, done.json["status"]) == (0, "COMPLETED")
    assert rows.one("SELECT status FROM orders") == "CANCELLED"


def test_a_task_after_the_payment_is_not_given_up(operator: Terminal, rows: Rows) -> None:
    """Money was taken: no program gives it back, so there is nothing to cancel."""
    rows.order("PAID", order_confirmation_task="COMPLETED", payment_task="COMPLETED", receipt_creation_task="PENDING")
    for table in ("receipt_creation_task", "payment_task"):
        done = operator.run("tasks", "cancel", table, "1")
        assert (done.code, "nothing was changed" in done.err) == (3, True), table
    assert rows.one("SELECT status FROM orders") == "PAID"
    assert rows.one("SELECT count(*) FROM operator_action") == 0


def test_tasks_are_listed_by_table_and_status(operator: Terminal, rows: Rows) -> None:
    """What waits for an operator is found, with its last error as it is; there is no table but those there are."""
    rows.order("PAYMENT_FAILED", order_confirmation_task="COMPLETED", payment_task="FAILED")
    rows.one("UPDATE payment_task SET last_error = 'timeout: [no] answer' RETURNING 1")
    (found,) = operator.run("tasks", "list", "--status", "FAILED", "--json").json
    assert (found["task"], found["taskId"], found["orderId"], found["attempts"]) == ("payment_task", 1, 1, 3)
    assert "timeout: [no] answer" in operator.run("tasks", "list", "--task", "payment_task").out
    assert operator.run("tasks", "list", "--status", "PENDING", "--json").json == []
    unknown = operator.run("tasks", "list", "--task", "payments")
    assert (unknown.code, "payment_task" in unknown.err) == (2, True)


def test_tasks_are_retried_each_on_its_own(operator: Terminal, rows: Rows) -> None:
    """One that has not failed is named and holds up no other."""
    rows.order("PAYMENT_FAILED", payment_task="FAILED")
    rows.order("CONFIRMED", payment_task="PENDING")
    rows.order("PAYMENT_FAILED", payment_task="FAILED")
    done = operator.run("tasks", "retry", "payment_task", "1", "2", "3", "--reason", "the bank is back", "--json")
    assert [(task["taskId"], task["attempts"]) for task in done.json] == [(1, 0), (3, 0)]
    assert (done.code, "no FAILED task 2" in done.err) == (3, True)
    assert rows.one("SELECT array_agg(status ORDER BY id) FROM orders") == ["CONFIRMED"] * 3
    assert [action["reason"] for action in operator.run("actions", "--json").json] == ["the bank is back"] * 2


def test_a_task_is_shown_with_all_that_is_known(operator: Terminal, rows: Rows) -> None:
    """One task on its own, with its error in full; one that is not there is said not to be."""
    rows.order("CONFIRMED", payment_task="PENDING")
    shown = operator.run("tasks", "show", "payment_task", "1")
    assert [word for word in ("timeout: no answer", "PENDING", "3600 s") if word not in shown.out] == []
    assert operator.run("tasks", "show", "payment_task", "1", "--json").json["lastError"] == "timeout: no answer"
    missing = operator.run("tasks", "show", "payment_task", "2")
    assert (missing.code, missing.err) == (3, "payment_task has no task 2: tasks list shows them\n")


def test_parked_events_are_found_and_published_again(operator: Terminal, rows: Rows) -> None:
    """An event that is not parked, or not there, is named and holds up no other."""
    parked, published = rows.event(rows.order(), "PARKED"), rows.event(rows.order(), "PUBLISHED")
    assert len(operator.run("events", "list", "--json").json) == 2
    (found,) = operator.run("events", "list", "--status", "PARKED", "--json").json
    assert (found["eventId"], found["lastError"]) == (parked, "refused: 410")
    assert parked in operator.run("events", "list", "--order", str(found["orderId"])).out
    done = operator.run("events", "retry", published, parked, str(uuid4()), "--reason", "the receiver is mended")
    assert (done.code, done.out) == (3, f"event {parked} of order {found['orderId']} is due now\n")
    assert done.err.count("nothing was changed") == 2
    assert rows.one(f"SELECT status || attempts FROM outbox_event WHERE event_id = '{parked}'") == "PENDING0"
    assert rows.one("SELECT reason FROM operator_action") == "the receiver is mended"


def test_a_reason_has_a_length(operator: Terminal) -> None:
    """What the table would refuse is refused in words, before anything is done."""
    done = operator.run("orders", "cancel", "1", "--reason", "x" * 501)
    assert (done.code, "1 to 500" in done.err) == (2, True)


def test_invariants_are_checked(operator: Terminal, rows: Rows) -> None:
    """Exit code 0 while they hold, 1 and what is wrong when they do not."""
    assert operator.run("invariants").code == 0
    rows.order("PAID")
    done = operator.run("invariants", "--json")
    assert (done.code, {found["orderId"] for found in done.json}) == (1, {1})


def test_systems_are_probed_from_here(bare_terminal: Terminal) -> None:
    """Without anything that answers, each system is shown to be down, with its configuration; exit code 1."""
    bare_terminal.set(
        ORDERS_CLIENT__SBER__BASE_URL="http://127.0.0.1:1/sber", ORDERS_PG__DSN="postgresql://nobody:x@h/d"
    )
    done = bare_terminal.run("systems", "--json")
    assert (done.code, done.json["sber"]["health"]["reason"]) == (1, "connect")
    assert done.json["sber"]["base_url"] == "http://127.0.0.1:1/sber"
    assert "http://127.0.0.1:1/sber" in bare_terminal.run("systems").out


async def test_systems_as_a_replica_sees_them(service: Service) -> None:
    """Asked with --url, a running replica tells of its breakers; one that is isolated lets no call through."""
    url = str(service.client.base_url)
    done = await asyncio.to_thread(run, "systems", "--url", url)
    assert (done.returncode, done.stdout.count("closed"), "as seen by" in done.stdout) == (0, 5, True), done.stderr
    service.wiring.systems["sber"].policy.isolate()
    done = await asyncio.to_thread(run, "systems", "--url", url)
    assert (done.returncode, "isolated" in done.stdout) == (1, True)
    done = await asyncio.to_thread(run, "systems", "--url", f"{url}/nowhere")
    assert (done.returncode, done.stderr.partition("systems: ")[2][:14]) == (3, "404 Not Found.")


async def test_a_replica_that_does_not_call_the_systems_says_so(pg_dsn: str, sandbox: Sandbox) -> None:
    """Its breakers are shown with the remark that the workers' are those that count."""
    async with service_running(settings_for(pg_dsn, sandbox.url), "api") as service:
        done = await asyncio.to_thread(run, "systems", "--url", str(service.client.base_url))
        assert "each worker" in done.stderr


def test_a_replica_that_does_not_answer_is_named(bare_terminal: Terminal) -> None:
    """Who asks where nobody is learns where that was."""
    done = bare_terminal.run("systems", "--url", "http://127.0.0.1:1")
    assert (done.code, "http://127.0.0.1:1 does not show its systems" in done.err) == (3, True)
    assert "protocol. Is" in bare_terminal.run("systems", "--url", "127.0.0.1").err


async def test_who_is_asked_for_systems_and_is_no_replica_is_named(bare_terminal: Terminal) -> None:
    """JSON that tells of something else is no reason for a traceback."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n[]")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as other:
        url = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}"
        done = await asyncio.to_thread(run, "systems", "--url", url)
    assert (done.returncode, "is something else" in done.stderr) == (3, True)
