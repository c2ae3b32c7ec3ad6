"""What can be checked or told without running the service."""

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.opened import load, opened, run
from app.cli.shown import AsJson, print_json, print_table

if TYPE_CHECKING:
    from app.orders.invariants import Violation

VIOLATED = 1

CONFIG_EXAMPLES = """
[dim]ORDERS_CONFIG=config/examples/production.yml python -m app check-config[/]

[dim]python -m app check-config --reference > docs/configuration.md[/]  after a change of config/default.yml
"""
OPENAPI_EXAMPLES = """
[dim]python -m app openapi > openapi.json[/]
"""


def check_config(
    reference: Annotated[bool, typer.Option("--reference", help="Print what every key means, in Markdown.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check the configuration and show how the connection pools add up."""
    if reference:
        from app.cli.reference import reference_page

        typer.echo(reference_page(), nl=False)
        return

    from app.wiring import check_wiring

    settings = load()
    check_wiring(settings)
    rows = list(settings.sizing())
    if as_json:
        print_json([row._asdict() for row in rows])
        return
    print_table(
        ("system", "max_concurrent", "pool", "sum", "limit"),
        ((r.system, r.max_concurrent, r.pool, r.total, f"{r.limit:g}") for r in rows),
    )
    last = rows[-1]
    typer.echo(f"pools: {last.total} <= pg.pool.max/2 = {settings.pg.pool.max}/2 = {last.limit:g}")
    typer.echo("the configuration is accepted")


def check_invariants(as_json: AsJson = False) -> None:
    """Check what must hold in the data, also while the service runs: 0 when it does, else 1 and what does not.

    Reads every order, task and event. A large database may need a larger pg.statement_timeout for this.
    """
    from app.orders.invariants import INVARIANTS

    found = run(_violations())
    if as_json:
        print_json([{"invariant": v.invariant.name, "orderId": v.order_id, "found": v.found} for v in found])
    elif found:
        columns = ("invariant", "order", "found", "it would mean that")
        print_table(columns, ((v.invariant.name, v.order_id, v.found, v.invariant.why) for v in found))
    else:
        typer.echo(f"all {len(INVARIANTS)} invariants hold")
    if found:
        raise typer.Exit(VIOLATED)


def openapi() -> None:
    """Print the API's OpenAPI document, as it is where callers are asked for keys."""
    from app.api.document import describe
    from app.main import create_app

    print_json(describe(create_app(load())))


async def _violations() -> "list[Violation]":
    from app.orders.invariants import violations

    async with opened() as wiring, wiring.database.engine.connect() as connection:
        return await violations(connection, wiring.settings.tasks, wiring.settings.events)
