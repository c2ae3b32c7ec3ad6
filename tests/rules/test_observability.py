"""Metrics and logs of the policies, as an operator sees them."""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.orders.ports import InvalidAnswer, SystemRefused, SystemUnavailable
from app.settings import ConfigError, load_settings
from tests.component.systems.orders import ORDER as DOMAIN_ORDER
from tests.processes import processes, wait_until
from tests.service import ORDER, SYSTEMS, Sandbox, Service, service_running, settings_for

ONE_TRY = {"ORDERS_CLIENT__DEFAULT__RETRY__ATTEMPTS": "1"}


class Shown:
    """What `/metrics` shows, and by how much it has grown since an earlier look."""

    def __init__(self, exposition: str) -> None:
        families = text_string_to_metric_families(exposition)
        self._samples = {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}

    def value(self, name: str, **labels: str) -> float:
        return self._samples.get((name, frozenset(labels.items())), 0.0)

    def growth(self, since: "Shown", name: str, **labels: str) -> float:
        return self.value(name, **labels) - since.value(name, **labels)


async def shown(service: Service) -> Shown:
    return Shown((await service.client.get("/metrics")).text)


def asking(service: Service) -> Callable[[], Coroutine[Any, Any, str | None]]:
    """A call to the insurance that ends in the kind of its error, or None."""

    async def ask() -> str | None:
        try:
            await service.wiring.systems["insurance"].adapter.confirmation(DOMAIN_ORDER, budget=20)
        except (SystemUnavailable, SystemRefused, InvalidAnswer) as error:
            return error.kind
        return None

    return ask


@pytest.mark.rule("OBS-1")
async def test_breaker_retries_and_bulkhead_are_metrics_of_their_system(pg_dsn: str, sandbox: Sandbox) -> None:
    """Each figure moves when its event happens at the insurance, and stays where it was for all other systems."""
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_CLIENT__INSURANCE__BREAKER__MINIMUM_CALLS": "3"})
    async with service_running(settings, "api") as service:
        ask, slots = asking(service), settings.client["insurance"].max_concurrent
        start = await shown(service)
        assert start.value("circuit_breaker_state", system="insurance") == 0
        await sandbox.set("insurance", mode="hang")
        hanging = [asyncio.create_task(ask()) for _ in range(slots)]
        async with asyncio.timeout(10):
            while await sandbox.calls("insurance") < slots:
                await asyncio.sleep(0.02)
        assert await ask() == "bulkhead_full"
        full = await shown(service)
        for call in hanging:
            call.cancel()
        await asyncio.wait(hanging)
        await sandbox.set("insurance", mode="error")
        assert await ask() == "http_503"
        opened = await shown(service)

    assert full.value("bulkhead_in_use", system="insurance") == slots
    assert full.growth(start, "bulkhead_rejected_total", system="insurance") == 1
    assert opened.value("bulkhead_in_use", system="insurance") == 0
    assert opened.growth(full, "retry_attempts_total", system="insurance", outcome="exhausted") == 1
    assert opened.value("circuit_breaker_state", system="insurance") == 1
    assert opened.growth(start, "circuit_breaker_transitions_total", system="insurance", to="open") == 1
    for other in SYSTEMS[1:]:
        assert opened.value("circuit_breaker_state", system=other) == 0
        assert opened.value("bulkhead_in_use", system=other) == 0
        assert opened.growth(start, "bulkhead_rejected_total", system=other) == 0
        assert opened.growth(start, "circuit_breaker_transitions_total", system=other, to="open") == 0


@pytest.mark.rule("OBS-3")
async def test_a_transition_is_one_warning_and_a_success_is_silence(
    pg_dsn: str, sandbox: Sandbox, caplog: pytest.LogCaptureFixture
) -> None:
    """Five good calls log nothing at all; the fifth failure after them logs one line with all four facts."""
    async with service_running(settings_for(pg_dsn, sandbox.url, ONE_TRY), "api") as service:
        ask = asking(service)
        application = service.wiring.systems["insurance"].adapter.apply(DOMAIN_ORDER, key="k-1", budget=20)
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "app"), caplog.at_level(logging.DEBUG, "httpx"):
            await application
            assert [await ask() for _ in range(4)] == [None] * 4
            assert [record for record in caplog.records if record.name.startswith("app")] == []
            await sandbox.set("insurance", mode="error")
            assert [await ask() for _ in range(5)] == ["http_503"] * 5
            assert await ask() == "circuit_open"
            told = [record for record in caplog.records if record.name.startswith("app")]
    assert [record.levelname for record in told] == ["WARNING"]
    line = told[0].msg
    assert isinstance(line, dict)
    assert {key: line[key] for key in ("event", "system", "from_state", "to_state", "failure_rate")} == {
        "event": "breaker changed",
        "system": "insurance",
        "from_state": "closed",
        "to_state": "open",
        "failure_rate": 0.5,
    }


@pytest.mark.rule("OBS-X1")
@pytest.mark.parametrize(
    "variable",
    [
        {"ORDERS_LOG__LEVEL": "ERROR"},
        {"ORDERS_LOG__LEVEL": "CRITICAL"},
        {"ORDERS_METRICS__ENABLED": "false"},
        {"ORDERS_CLIENT__DEFAULT__METRICS": "false"},
        {"ORDERS_CLIENT__SBER__BREAKER__LOG": "false"},
    ],
)
def test_no_setting_hides_what_the_policies_tell(variable: dict[str, str]) -> None:
    """There is no switch for metrics or for the log of transitions, and no log level above theirs."""
    with pytest.raises(ConfigError):
        load_settings(variable)


@pytest.mark.slow
@pytest.mark.rule("OBS-X1", "OBS-3")
def test_the_quietest_service_still_tells(pg_dsn: str, tmp_path: Path) -> None:
    """With all turned off that can be, a worker without intake shows its metrics and logs a transition."""
    with processes(pg_dsn, tmp_path) as run:
        run.environ |= {"ORDERS_LOG__LEVEL": "WARNING", "ORDERS_LOG__FORMAT": "json", "ORDERS_API__DOCS": "false"}
        run.environ |= {"ORDERS_CLIENT__INSURANCE__BREAKER__MINIMUM_CALLS": "1", "ORDERS_SHUTDOWN__LEAD": "0"}
        sandbox = run.sandbox()
        httpx.put(f"{sandbox.url}/insurance/_control", json={"mode": "error"}, trust_env=False).raise_for_status()
        intake, worker = run.serve("api"), run.serve("worker")
        httpx.post(f"{intake.url}/orders", json=ORDER, trust_env=False).raise_for_status()

        def opened() -> bool:
            metrics = Shown(httpx.get(f"{worker.url}/metrics", trust_env=False).text)
            return metrics.value("circuit_breaker_transitions_total", system="insurance", to="open") == 1

        wait_until(opened, 30, "the insurance's breaker opens")
        wait_until(lambda: "breaker changed" in worker.log.read_text(), 5, "its line is written")
        lines: list[dict[str, Any]] = [json.loads(line) for line in worker.log.read_text().splitlines()]
    assert [line["system"] for line in lines if line["event"] == "breaker changed"] == ["insurance"]
