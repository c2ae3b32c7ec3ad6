"""The demo from its first line on the screen to its last."""

import asyncio
import json
from collections.abc import Sequence
from urllib.parse import urlsplit

import httpx
from rich.console import Console

from app.demo.board import board
from app.demo.samples import KNOBS, ONE_MORE, SAMPLES
from app.demo.stage import DemoFailed, Stage, open_stage
from app.demo.way import PlacedOrder, follow, place

PATIENCE = 60.0
"""Seconds within which all sample orders must be final."""


async def run_demo(console: Console, *, once: bool, dsn: str | None = None) -> bool:
    """Show how orders travel; returns whether all sample orders were completed.

    With `once` that is all, otherwise it goes on serving until a signal ends it. Raises as `open_stage` does.
    """
    _say(console, "Starting a database, stand-ins for the five systems, and the service ...")
    async with open_stage(dsn) as stage:
        _introduce(console, stage)
        showing = asyncio.create_task(_show(console, stage), name="show")
        await asyncio.wait({showing, stage.serving}, return_when=asyncio.FIRST_COMPLETED)
        if not showing.done():
            showing.cancel()
            await asyncio.wait({showing})
            stage.serving.result()
            return False
        completed = showing.result()
        if not (once or stage.server.should_exit):
            _invite(console, stage)
            await stage.serving
        return completed


async def _show(console: Console, stage: Stage) -> bool:
    """Place the sample orders and follow them to their ends; returns whether all were completed."""
    orders: list[PlacedOrder] = []
    try:
        async with httpx.AsyncClient(base_url=stage.url, trust_env=False) as http, asyncio.timeout(PATIENCE):
            orders += [await place(http, sample) for sample in SAMPLES]
            with board(console, orders) as show:
                await follow(http, orders, show)
    except TimeoutError:
        _say(console, f"\nNot all orders came to an end within {PATIENCE:g} s.")
    except httpx.HTTPError as error:
        if not stage.server.should_exit:
            raise DemoFailed(f"the service does not answer as it should: {error!r}") from error
    return _conclude(console, stage, orders)


def _introduce(console: Console, stage: Stage) -> None:
    pg = stage.settings.pg
    if pg.dsn is None:
        database = f"embedded PostgreSQL in {pg.data_dir}; a configured pg.dsn is left alone, --dsn chooses one"
    else:
        url = urlsplit(pg.dsn.get_secret_value())
        database = f"{url.path.strip('/')} on {url.hostname}, given with --dsn"
    for what, where in (
        ("database", database),
        ("systems", f"{stage.sandbox} plays {', '.join(KNOBS)}"),
        ("service", stage.url),
        ("log", str(stage.log)),
    ):
        _say(console, f"  {what:9} {where}")
    for taken in stage.taken:
        _say(console, f"  port {taken} is taken by another process, hence the next free one")
    _say(console, f"\n{len(SAMPLES)} orders, placed with POST /orders:\n")


def _conclude(console: Console, stage: Stage, orders: Sequence[PlacedOrder]) -> bool:
    completed = [order for order in orders if order.completed]
    if len(completed) == len(SAMPLES):
        _say(console, f"\nAll {len(SAMPLES)} orders are COMPLETED after {max(o.seconds for o in orders):.1f} s.")
        return True
    for order in orders:
        if not order.completed:
            _say(
                console, f"order {order.view.order_id} is {order.view.status}: {'; '.join(order.errors) or 'under way'}"
            )
    _say(console, f"{len(completed)} of {len(SAMPLES)} orders are COMPLETED. {stage.log} tells more.")
    return False


def _invite(console: Console, stage: Stage) -> None:
    json_type = "-H 'Content-Type: application/json'"
    _say(
        console,
        f"""
  API, described      {stage.url}/docs
  readiness           {stage.url}/health/ready
  metrics             {stage.url}/metrics
  systems, controls   {stage.sandbox}/

Place one more, and look at it under the address that Location names:
  curl -i {stage.url}/orders {json_type} -d '{json.dumps(ONE_MORE.body())}'
Break a system while orders are on their way, and mend it with "ok":
  curl -X PUT {stage.sandbox}/insurance/_control {json_type} -d '{{"mode": "error"}}'

Ctrl-C ends the demo; the orders stay.""",
    )


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
