"""The demo from its first line on the screen to its last."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence

import httpx
from rich.console import Console

from app.demo.board import board
from app.demo.samples import ONE_MORE, SAMPLES
from app.demo.screen import introduce, say
from app.demo.stage import DemoFailed, Stage, open_stage, while_serving
from app.demo.way import PlacedOrder, follow, place

PYTHON = os.path.relpath(sys.executable)

PATIENCE = 60.0
"""Seconds within which all sample orders must be final."""


async def run_demo(console: Console, *, once: bool, dsn: str | None = None) -> bool:
    """Show how orders travel; returns whether all sample orders were completed.

    With `once` that is all, otherwise it goes on serving until a signal ends it. Raises as `open_stage` does.
    """
    say(console, "Starting a database, stand-ins for the five systems, and the service ...")
    async with open_stage(dsn) as stage:
        introduce(console, stage)
        say(console, f"\n{len(SAMPLES)} orders, placed with POST /orders:\n")
        orders: list[PlacedOrder] = []
        completed = await while_serving(stage, _show(console, stage, orders))
        if not (once or stage.server.should_exit):
            _invite(console, stage)
            await stage.serving
        return completed


async def _show(console: Console, stage: Stage, orders: list[PlacedOrder]) -> bool:
    """Place the sample `orders` and follow them to their ends; returns whether all were completed."""
    try:
        async with httpx.AsyncClient(base_url=stage.url, trust_env=False) as http, asyncio.timeout(PATIENCE):
            orders += [await place(http, sample) for sample in SAMPLES]
            with board(console, orders) as show:
                await follow(http, orders, show)
    except TimeoutError:
        say(console, f"\nNot all orders came to an end within {PATIENCE:g} s.")
    except httpx.HTTPError as error:
        if not stage.server.should_exit:
            raise DemoFailed(f"the service does not answer as it should: {error!r}") from error
    return _conclude(console, stage, orders)


def _conclude(console: Console, stage: Stage, orders: Sequence[PlacedOrder]) -> bool:
    completed = [order for order in orders if order.completed]
    if len(completed) == len(SAMPLES):
        say(console, f"\nAll {len(SAMPLES)} orders are COMPLETED after {max(o.seconds for o in orders):.1f} s.")
        return True
    for order in orders:
        if not order.completed:
            say(
                console, f"order {order.view.order_id} is {order.view.status}: {'; '.join(order.errors) or 'under way'}"
            )
    say(console, f"{len(completed)} of {len(SAMPLES)} orders are COMPLETED. {stage.log} tells more.")
    return False


def _invite(console: Console, stage: Stage) -> None:
    place = f"curl -s {stage.url}/orders -H 'Content-Type: application/json' -d '{json.dumps(ONE_MORE.body())}'"
    break_or_mend = f"curl -X PUT {stage.sandbox}/insurance/_control -d"
    say(
        console,
        f"""
Look around:
  console             {stage.url}/ops
  API, to try out     {stage.url}/docs, to read {stage.url}/redoc
  systems, controls   {stage.sandbox}/
  readiness, metrics  {stage.url}/health/ready, {stage.url}/metrics

Place one more order, and follow it:
  id=$({place} | grep -o '[0-9]*' | head -1)
  curl -N {stage.url}/orders/$id/events
Break the insurer, place eight orders, and look until its breaker is open:
  {break_or_mend} '{{"mode": "error"}}'
  for i in 1 2 3 4 5 6 7 8; do {place}; done
  {PYTHON} -m app systems --url {stage.url}
Mend it, and the eight go on by themselves within {stage.settings.client["insurance"].breaker.open_seconds:g} s:
  {break_or_mend} '{{"mode": "ok"}}'

Ctrl-C ends the demo; the orders stay. What an outage does to them tells
  {PYTHON} -m app demo --story outage""",
    )
