"""The external systems: as this machine reaches them now, or as a running replica sees them."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.opened import CannotRun, load, run
from app.cli.shown import AsJson, print_json, print_table

if TYPE_CHECKING:
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
    found = run(_ask(url, key)) if url else run(_probe(load()))
    if as_json:
        print_json(found)
    elif url:
        _print_seen(found)
    else:
        _print_probed(found)
    if any(_is_down(system) for system in found.values()):
        raise typer.Exit(DOWN)


async def _probe(settings: "Settings") -> dict[str, Any]:
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
    return {s.name: _section(settings.client[s.name], c) for s, c in zip(systems, conditions, strict=True)}


def _section(client: "ClientSettings", condition: "Condition") -> dict[str, Any]:
    section = client.model_dump(mode="json")
    return {**section, "health": {**section["health"], "up": condition.up, "reason": condition.reason}}


async def _ask(url: str, key: str | None) -> dict[str, Any]:
    """By name: what `GET /ops/systems` of the replica answers. Raises CannotRun."""
    import httpx

    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        async with httpx.AsyncClient(trust_env=False, headers=headers, timeout=10) as http:
            answer = await http.get(f"{url.rstrip('/')}/ops/systems")
            answer.raise_for_status()
            systems: dict[str, Any] = answer.json()["systems"]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
        question = "Is a service there, and does it want an API key?"
        raise CannotRun(f"{url} does not show its systems: {error}. {question}") from error
    return systems


def _is_down(system: dict[str, Any]) -> bool:
    breaker, health = system["breaker"], system["health"]
    return breaker.get("state") == "open" or not (health is None or health["up"])


def _print_probed(found: dict[str, Any]) -> None:
    columns = ("system", "health", "why", "address", "at once", "connect", "read", "total", "breaker opens at", "for")
    print_table(columns, ((name, *_configured(system)) for name, system in found.items()))


def _configured(system: dict[str, Any]) -> tuple[str | None, ...]:
    breaker = system["breaker"]
    return (
        *_condition(system["health"]),
        system["base_url"],
        str(system["max_concurrent"]),
        *(f"{system[f'{limit}_timeout']:g} s" for limit in ("connect", "read", "total")),
        f"{breaker['failure_rate']:.0%} of {breaker['minimum_calls']} to {breaker['window']} calls",
        f"{breaker['open_seconds']:g} s",
    )


def _print_seen(found: dict[str, Any]) -> None:
    columns = (
        "system",
        "breaker",
        "half-open in",
        "samples",
        "failures",
        "in use",
        "waiting",
        "health",
        "why",
        "probed",
    )
    print_table(columns, ((name, *_seen(system)) for name, system in found.items()))
    typer.echo("as seen by " + ", ".join(sorted({system["replica"] for system in found.values()})))


def _seen(system: dict[str, Any]) -> tuple[str | None, ...]:
    breaker, bulkhead, health = system["breaker"], system["bulkhead"], system["health"]
    left = breaker["secondsToHalfOpen"]
    return (
        "isolated" if breaker["isolated"] else breaker["state"],
        None if left is None else f"{left:.0f} s",
        f"{breaker['samples']} of {breaker['window']}",
        f"{breaker['failureRate']:.0%}",
        f"{bulkhead['inUse']} of {bulkhead['capacity']}",
        str(bulkhead["waiting"]),
        *((None, None) if health is None else _condition(health)),
        None if health is None else f"{health['age']:.0f} s ago",
    )


def _condition(health: dict[str, Any]) -> tuple[str, str | None]:
    """Whether the probe got an answer, and what came instead."""
    return "up" if health["up"] else "down", health["reason"]
