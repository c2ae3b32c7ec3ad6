"""The external systems: as this machine reaches them now, or as a running replica sees them."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.opened import CannotRun, load, run
from app.cli.shown import AsJson, print_json, print_table, say

if TYPE_CHECKING:
    from app.api.schemas import SystemView
    from app.api.schemas.systems import ConditionView
    from app.settings import ClientSettings, Settings
    from app.systems.health import Condition

DOWN = 1

EXAMPLES = """
[dim]python -m app systems[/]  addresses, timeouts and sizes, and a probe of each from here

[dim]OPS_KEY=… python -m app systems --url http://127.0.0.1:8000[/]  the breakers of the replica that answers there
"""


def show_systems(
    url: Annotated[str | None, typer.Option(help="A running replica to ask; its breakers are its own.")] = None,
    key: Annotated[str | None, typer.Option(envvar="OPS_KEY", help="An API key with the scope ops, for --url.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show each external system: how it is configured and whether it answers, or what a replica thinks of it.

    Exit code 1 if one is down: its probe fails, or the replica's breaker lets no call through.
    """
    if url:
        seen = run(_ask(url, key))
        down = any(_is_down(system) for system in seen.values())
        print_json(seen) if as_json else _print_seen(seen)
        for note in filter(None, (system.note for system in seen.values())):
            typer.echo(note, err=True)
    else:
        probed = run(_probe(load()))
        down = not all(condition.up for _, condition in probed.values())
        print_json({name: _section(*found) for name, found in probed.items()}) if as_json else _print_probed(probed)
    if down:
        raise typer.Exit(DOWN)


async def _probe(settings: "Settings") -> "dict[str, tuple[ClientSettings, Condition]]":
    """By name: the system's section, and what a probe from here has found."""
    from contextlib import AsyncExitStack

    from app.systems.system import open_system
    from app.wiring import ADAPTERS, check_wiring

    check_wiring(settings)
    async with AsyncExitStack() as stack:
        systems = [
            await stack.enter_async_context(open_system(name, settings.client[name], adapter))
            for name, adapter in ADAPTERS.items()
        ]
        conditions = await asyncio.gather(*(system.health.check() for system in systems))
    return {s.name: (settings.client[s.name], condition) for s, condition in zip(systems, conditions, strict=True)}


def _section(client: "ClientSettings", condition: "Condition") -> dict[str, Any]:
    section = client.model_dump(mode="json")
    return {**section, "health": {**section["health"], "up": condition.up, "reason": condition.reason}}


async def _ask(url: str, key: str | None) -> "dict[str, SystemView]":
    """By name: what `GET /ops/systems` of the replica answers. Raises CannotRun."""
    import httpx

    from app.api.schemas import SystemsView

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        async with httpx.AsyncClient(trust_env=False, headers=headers, timeout=10) as http:
            answer = await http.get(f"{url.rstrip('/')}/ops/systems")
            answer.raise_for_status()
            return SystemsView.model_validate_json(answer.content).systems
    except httpx.HTTPStatusError as error:
        said = f"{error.response.status_code} {error.response.reason_phrase}"
        raise CannotRun(f"{url} does not show its systems: {said}. Is it the service, and is the key right?") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        said = str(error).rstrip(".") or type(error).__name__
        raise CannotRun(f"{url} does not show its systems: {said}. Is the service there?") from error
    except ValueError as error:
        raise CannotRun(f"{url} does not show its systems: what answers there is something else") from error


def _is_down(system: "SystemView") -> bool:
    return system.breaker.state == "open" or not (system.health is None or system.health.up)


def _print_probed(found: "dict[str, tuple[ClientSettings, Condition]]") -> None:
    columns = ("system", "health", "why", "address", "at once", "connect", "read", "total", "breaker opens at", "for")
    print_table(columns, ((name, *_probed(*system)) for name, system in found.items()))


def _probed(client: "ClientSettings", condition: "Condition") -> tuple[object, ...]:
    breaker = client.breaker
    return (
        *_health(condition),
        client.base_url,
        client.max_concurrent,
        *(f"{limit:g} s" for limit in (client.connect_timeout, client.read_timeout, client.total_timeout)),
        f"{breaker.failure_rate:.0%} of {breaker.minimum_calls} to {breaker.window} calls",
        f"{breaker.open_seconds:g} s",
    )


def _print_seen(found: "dict[str, SystemView]") -> None:
    columns = (
        *("system", "breaker", "half-open in", "samples", "failures"),
        *("in use", "waiting", "health", "why", "probed"),
    )
    print_table(columns, ((name, *_seen(system)) for name, system in found.items()))
    say("as seen by " + ", ".join(sorted({system.replica for system in found.values()})))


def _seen(system: "SystemView") -> tuple[object, ...]:
    breaker, bulkhead, health = system.breaker, system.bulkhead, system.health
    left = breaker.seconds_to_half_open
    return (
        "isolated" if breaker.isolated else breaker.state,
        None if left is None else f"{left:.0f} s",
        f"{breaker.samples} of {breaker.window}",
        f"{breaker.failure_rate:.0%}",
        f"{bulkhead.in_use} of {bulkhead.capacity}",
        bulkhead.waiting,
        *((None, None, None) if health is None else (*_health(health), f"{health.age:.0f} s ago")),
    )


def _health(found: "Condition | ConditionView") -> tuple[str, str | None]:
    """Whether the probe got an answer, and what came instead."""
    return "up" if found.up else "down", found.reason
