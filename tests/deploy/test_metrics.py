"""What rules and dashboards name is what a running service exposes."""

import asyncio
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from httpx_aiohttp import HttpxAiohttpClient
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.promql import metric_names
from tests.deploy.sources import ALERTS, PROMETHEUS, RECORDED, expressions
from tests.processes import free_port
from tests.service import Sandbox, Service, service_running, settings_for
from tests.tools import installed

SCRAPED_BY_PROMETHEUS = {"up"}
OF_LINUX = re.compile(r"process_")
"""prometheus_client reads these from /proc, which not every machine has."""


SAMPLES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",), "info": ("_info",)}


async def exposed(service: Service) -> dict[str, set[str]]:
    """By the name of each series that there is or may be: the labels it has, if there is one already."""
    families = list(text_string_to_metric_families((await service.client.get("/metrics")).text))
    shown: dict[str, set[str]] = {f.name + end: set() for f in families for end in SAMPLES[f.type]}
    for sample in (sample for family in families for sample in family.samples):
        shown[sample.name] |= sample.labels.keys()
    return shown


@pytest.fixture
async def busy(pg_dsn: str, sandbox: Sandbox) -> AsyncIterator[Service]:
    """A service that has completed an order, and has looked at its backlog and its invariants."""
    settings = settings_for(pg_dsn, sandbox.url, {"ORDERS_INVARIANTS__FIRST_AFTER": "0.1"})
    async with service_running(settings) as service:
        await service.reach([await service.place()], "COMPLETED")
        async with asyncio.timeout(30):
            while not ((shown := await exposed(service))["task_due"] and shown["invariant_violations"]):
                await asyncio.sleep(0.1)
        yield service


async def test_every_metric_that_is_named_is_exposed(busy: Service) -> None:
    """No rule and no panel asks for a series that the service does not have, nor for a label that the series lacks."""
    shown = await exposed(busy)
    known = shown.keys() | RECORDED | SCRAPED_BY_PROMETHEUS
    for place, expression in expressions():
        missing = {name for name in metric_names(expression) - known if not OF_LINUX.match(name)}
        assert missing == set(), place
        for name, matchers in re.findall(r"(\w+)\{([^}]*)\}", expression):
            labels = set(re.findall(r"(\w+)\s*[=!]", matchers)) - {"job"}
            assert labels <= shown.get(name, set()), f"{place}: {name}"


@asynccontextmanager
async def prometheus(directory: Path, target: str) -> AsyncIterator[HttpxAiohttpClient]:
    """Run the installed Prometheus with our configuration, except that it finds one target and asks every second."""
    program = installed("prometheus", "apt-get install prometheus")
    config: dict[str, Any] = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())
    (job,) = config["scrape_configs"]
    del job["dns_sd_configs"]
    job["static_configs"] = [{"targets": [target]}]
    config["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config["rule_files"] = [str(PROMETHEUS / name) for name in config["rule_files"]]
    file, address = directory / "prometheus.yml", f"127.0.0.1:{free_port()}"
    file.write_text(yaml.safe_dump(config))
    with (directory / "prometheus.log").open("wb") as output:
        popen = subprocess.Popen(
            [
                program,
                f"--config.file={file}",
                f"--storage.tsdb.path={directory}/data",
                f"--web.listen-address={address}",
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        async with HttpxAiohttpClient(base_url=f"http://{address}/api/v1") as client:
            yield client
    finally:
        popen.terminate()
        popen.wait(10)


async def asked(client: HttpxAiohttpClient, path: str, **query: str) -> Any:
    """The answer's data, as soon as Prometheus gives one that is not empty."""
    async with asyncio.timeout(30):
        while True:
            try:
                data = (await client.get(path, params=query)).json()["data"]
            except (httpx.HTTPError, KeyError, ValueError):
                data = None
            if data and data.get("result", True):
                return data
            await asyncio.sleep(0.2)


@pytest.mark.slow
async def test_a_real_prometheus_scrapes_the_service_and_evaluates_the_rules(busy: Service, tmp_path: Path) -> None:
    """Its target is up, all rules are loaded and evaluate without an error, and an order is found in a query."""
    async with prometheus(tmp_path, busy.client.base_url.netloc.decode()) as client:
        found = await asked(client, "/query", query='orders_total{status="COMPLETED"} > 0')
        assert found["result"][0]["metric"]["job"] == "orders"
        (target,) = (await asked(client, "/targets"))["activeTargets"]
        assert target["health"] == "up"
        await asked(client, "/query", query="orders:intake_failed:ratio_rate5m or on () vector(1)")
        rules = [rule for group in (await asked(client, "/rules"))["groups"] for rule in group["rules"]]
        assert {rule["name"] for rule in rules} == ALERTS.keys() | RECORDED
        assert [(rule["name"], rule.get("lastError")) for rule in rules if rule["health"] == "err"] == []
