"""What `/metrics` shows, in both of its formats, and what makes no difference to it."""

import asyncio
import contextlib
import secrets
import subprocess
from collections.abc import Sequence

from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_trace_id
from sqlalchemy import text

from app import VERSION
from app.observability import metrics
from app.observability.lag import INTERVAL
from app.settings import load_settings
from app.tasks.settlement import settle
from app.tasks.task import Done, GivenUp, NotMade, NotYet, Sent, Task, TaskStatus
from tests.component.observability.exposition import OPENMETRICS, families, samples, text_of, value
from tests.service import Sandbox, Service, service_running, settings_for
from tests.tools import installed

FIXED = {
    "circuit_breaker_state": {"system"},
    "circuit_breaker_transitions_total": {"system", "to"},
    "retry_attempts_total": {"system", "outcome"},
    "bulkhead_rejected_total": {"system"},
    "bulkhead_in_use": {"system"},
    "external_call_seconds_count": {"system", "operation", "outcome"},
    "task_due": {"task"},
    "task_oldest_due_seconds": {"task"},
    "tasks_settled_total": {"task", "outcome"},
    "task_lease_lost_total": {"task"},
    "orders_total": {"status"},
    "order_confirmation_seconds_count": set(),
    "outbox_unsent": set(),
    "outbox_oldest_seconds": set(),
}
"""What programs outside rely on: names and labels."""

METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD")
ODD = ("PROPFIND", "REPORT", "MKCOL", "LOCK", "TRACE")


async def test_the_names_that_others_rely_on(service: Service) -> None:
    """Each metric that dashboards and alerts are built on is shown under its name, with its labels."""
    await service.reach([await service.place()], "COMPLETED")
    shown = {sample.name: set(sample.labels) for sample in samples(await families(service))}
    assert {name: shown.get(name) for name in FIXED} == FIXED


async def test_the_process_tells_of_itself(service: Service) -> None:
    """Memory, descriptors, version, pool and event loop are shown in every role."""
    await asyncio.sleep(2 * INTERVAL)
    assert await value(service, "orders_build_info", version=VERSION) == 1
    assert (await value(service, "process_resident_memory_bytes") or 0) > 10_000_000
    assert (await value(service, "process_open_fds") or 0) > 1
    assert (await value(service, "event_loop_lag_seconds_count") or 0) >= 1
    assert await value(service, "database_pool_size") == service.wiring.database.pool_size


async def test_a_blocked_event_loop_shows(service: Service) -> None:
    """Half a second without a turn of the loop is measured as lateness."""
    before = metrics.loop_lag._sum.get()
    await asyncio.sleep(INTERVAL / 10)
    subprocess.run(["sleep", str(INTERVAL * 1.5)], check=True)
    await asyncio.sleep(INTERVAL)
    assert metrics.loop_lag._sum.get() - before > INTERVAL / 4


async def test_who_holds_and_who_waits_for_a_connection_is_counted(pg_dsn: str, sandbox: Sandbox) -> None:
    """With a pool of which everything is taken, those who wait are seen, and nobody any more afterwards."""
    small = {"ORDERS_CLIENT__DEFAULT__MAX_CONCURRENT": "1", "ORDERS_CLIENT__INSURANCE__MAX_CONCURRENT": "1"}
    small |= {f"ORDERS_CLIENT__{name}__MAX_CONCURRENT": "1" for name in ("SBER", "RECEIPT", "ODNAKASSA", "ORDERBOOK")}
    settings = settings_for(pg_dsn, sandbox.url, {**small, "ORDERS_PG__POOL__MAX": "20"})
    async with service_running(settings, "api") as service, contextlib.AsyncExitStack() as stack:
        engine = service.wiring.database.engine
        for _ in range(20):
            await stack.enter_async_context(engine.connect())
        waiting = [asyncio.create_task(service.client.get("/orders/1")) for _ in range(3)]
        async with asyncio.timeout(3):
            while await value(service, "database_pool_waiting") != 3:
                await asyncio.sleep(0.02)
        assert await value(service, "database_pool_in_use") == 20
        await stack.aclose()
        await asyncio.wait(waiting)
        assert await value(service, "database_pool_waiting") == 0
        assert await value(service, "database_pool_in_use") == 0


async def test_the_number_of_series_does_not_grow(service: Service) -> None:
    """Two hundred unknown paths, odd methods and twenty more orders add no series to what a few of each made."""

    async def use(orders: int, paths: int, methods: Sequence[str]) -> None:
        await service.reach([await service.place() for _ in range(orders)], "COMPLETED")
        for method in methods:
            await service.client.request(method, f"/{secrets.token_hex(4)}")
            await service.client.request(method, "/orders/1")
        for _ in range(paths):
            await service.client.get(f"/{secrets.token_urlsafe(8)}/{secrets.token_hex(2)}?{secrets.token_hex(2)}")
            await service.client.get(f"/orders/{secrets.randbelow(10**6) + 10**6}")

    await use(3, 2, [*METHODS, ODD[0]])
    before = {(s.name, *sorted(s.labels.items())) for s in samples(await families(service))}
    await use(20, 200, [*METHODS, *ODD])
    after = {(s.name, *sorted(s.labels.items())) for s in samples(await families(service))}
    assert after - before == set()


def test_every_outcome_of_a_task_starts_at_zero() -> None:
    """What a settled attempt can count as is shown before it happens: an alert sees the first failure."""
    task = Task(1, 1, TaskStatus.PENDING, 1, 1, "{}", "k-1")
    outcomes = (Sent("a-1"), Done(), GivenUp("no"), NotMade("open"), NotYet("pending"))
    rules = load_settings({}).tasks["payment_task"]
    assert {settle(task, outcome, rules).label for outcome in outcomes} == set(metrics.TASK_OUTCOMES)


async def test_promtool_has_nothing_to_say(service: Service) -> None:
    """Names, types and help texts are as Prometheus wants them."""
    promtool = installed("promtool", "apt-get install prometheus")
    await service.reach([await service.place()], "COMPLETED")
    exposition = await text_of(service)
    checked = await asyncio.to_thread(
        subprocess.run, [promtool, "check", "metrics"], input=exposition, capture_output=True, text=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")


async def test_both_formats_show_the_same(service: Service) -> None:
    """A scraper that asks for OpenMetrics gets it, complete; any other the text format."""
    plain, open_text = await families(service), await families(service, OPENMETRICS)
    assert {sample.name for sample in samples(plain)} == {sample.name for sample in samples(open_text)}
    answer = await service.client.get("/metrics", headers={"accept": OPENMETRICS})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


async def test_histograms_lead_to_traces(spans: InMemorySpanExporter, pg_dsn: str, sandbox: Sandbox) -> None:
    """A traced order is an example of the calls made for it and of its confirmation."""
    async with service_running(settings_for(pg_dsn, sandbox.url)) as service:
        await service.reach([await service.place()], "COMPLETED")
        shown = samples(await families(service, OPENMETRICS))
    known = {format_trace_id(span.context.trace_id) for span in spans.get_finished_spans() if span.context}
    for name in ("external_call_seconds_bucket", "order_confirmation_seconds_bucket"):
        found = {s.exemplar.labels["trace_id"] for s in shown if s.name == name and s.exemplar}
        assert found & known, name


async def test_the_figures_of_the_queues_follow_the_tables(service: Service) -> None:
    """A row that lies due where nobody claims it is counted."""
    wiring = service.wiring
    for poller in wiring.pollers.values():
        poller.stop_claiming()
    await service.place()
    async with wiring.database.engine.begin() as conn:
        await conn.execute(text("UPDATE order_confirmation_task SET next_attempt_at = now() - interval '90 s'"))
    wiring.figures.ring()
    async with asyncio.timeout(5):
        while (await value(service, "task_oldest_due_seconds", task="order_confirmation_task") or 0) < 90:
            await asyncio.sleep(0.02)
    assert await value(service, "task_due", task="order_confirmation_task") == 1
