"""What runs until it is ended: the service, the demo, the stand-ins. And the migration before them."""

import sys
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from app.cli.opened import CannotRun, load, require_answer, require_database, run
from app.cli.shown import AsJson, print_json

if TYPE_CHECKING:
    import socket

    from app.settings import Settings

NOT_COMPLETED = 1

Role = Literal["all", "api", "worker"]
Story = Literal["outage"]

SERVE_EXAMPLES = """
[dim]python -m app serve[/]  everything in one process, PostgreSQL included

[dim]ORDERS_PG__DSN=postgresql://… python -m app serve --role worker --port 0[/]  one more worker
"""
DEMO_EXAMPLES = """
[dim]python -m app demo[/]  orders on their way, then a place to play

[dim]python -m app demo --story outage[/]  the insurer goes down and comes back, told as it happens
"""
SANDBOX_EXAMPLES = """
[dim]python -m app sandbox[/]

[dim]curl -X PUT http://127.0.0.1:8100/insurance/_control -d '{"mode": "hang"}'[/]  break one

[dim]curl -X PUT http://127.0.0.1:8100/insurance/_control -d '{"mode": "ok"}'[/]  mend it
"""


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on; api.host by default.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on, 0 for a free one; api.port by default.")] = None,
    role: Annotated[Role, typer.Option(help="api answers requests, worker brings orders on, all does both.")] = "all",
) -> None:
    """Run the service until SIGTERM or Ctrl-C.

    With the embedded PostgreSQL it migrates by itself. With pg.dsn it does not: `python -m app migrate` does, once per
    release. Until the database answers and has been migrated, in whatever order a rollout brings that about, the
    service runs and its readiness is red and says why.
    """
    import asyncio

    from app.observability.logs import configure_logs
    from app.observability.traces import exporting
    from app.occupied import hold, listen
    from app.wiring import check_wiring

    settings = load({"ORDERS_API__HOST": host, "ORDERS_API__PORT": port})
    check_wiring(settings)
    _refuse_embedded(settings, role)
    configure_logs(settings.log.level, settings.log.format)
    embedded = settings.pg.dsn is None
    with (
        listen(settings.api.host, settings.api.port) as listener,
        hold(settings.pg.data_dir, alone=False) if embedded else nullcontext(),
        exporting(settings.telemetry),
        suppress(asyncio.CancelledError),  # a SIGTERM before the server was there to hear it
    ):
        run(_serve(settings, role, listener))


def demo(
    once: Annotated[bool, typer.Option("--once", help="End when all are final: 0 if all were completed.")] = False,
    story: Annotated[Story | None, typer.Option(help="Tell what happens while a system is down, and end.")] = None,
    dsn: Annotated[str | None, typer.Option(help="A PostgreSQL to use and migrate, not the embedded one.")] = None,
) -> None:
    """Start everything on this machine and watch sample orders on their way."""
    from rich.console import Console

    from app.demo.outage import tell_outage
    from app.demo.show import run_demo
    from app.demo.stage import DemoFailed

    console = Console(force_terminal=sys.stdout.isatty())
    try:
        completed = run(tell_outage(console, dsn=dsn) if story else run_demo(console, once=once, dsn=dsn))
    except DemoFailed as error:
        raise CannotRun(str(error)) from error
    if (once or story) and not completed:
        raise typer.Exit(NOT_COMPLETED)


def sandbox(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on, 0 for a free one.")] = 8100,
) -> None:
    """Play all five external systems, each under its name; PUT /{name}/_control changes how one behaves."""
    from app.occupied import no_address
    from app.sandbox import server

    try:
        server.run(host, port)
    except OSError as error:
        raise no_address(host, port, error) from error


def migrate_schema(as_json: AsJson = False) -> None:
    """Bring the database's schema up to date; any number may do so at a time."""
    settings = load()
    require_database(settings)
    applied = run(_migrate(settings))
    if as_json:
        print_json({"applied": applied})
    else:
        typer.echo(f"applied {', '.join(applied)}" if applied else "the schema is up to date")


def _refuse_embedded(settings: "Settings", role: Role) -> None:
    """A part of a larger service that knows no database has lost it: none is made for it. Raises ConfigError.

    Not a rule of the configuration, since check-config and openapi are right without the DSN, which is a secret.
    """
    from app.settings import ConfigError

    if settings.pg.dsn is None and (role != "all" or not settings.api.loopback):
        why = f"--role {role}" if role != "all" else f"api.host = {settings.api.host}"
        alone = "the embedded PostgreSQL is for one process that only this machine reaches"
        raise ConfigError([f"pg.dsn: needed with {why}: {alone}. Set ORDERS_PG__DSN"])


async def _serve(settings: "Settings", role: Role, listener: "socket.socket") -> None:
    import structlog

    from app.db import migrate, open_database
    from app.main import create_server

    log = structlog.get_logger()
    async with open_database(settings.pg, application_name="orders-start") as database:
        if settings.pg.dsn is None:
            await migrate(database)
        elif (problem := await database.ping() or await database.schema_behind()) is not None:
            log.warning("not ready yet", problem=problem)
        await database.engine.dispose()
        host, port = listener.getsockname()[:2]
        log.info("serving", host=host, port=port, role=role, database=settings.pg.place)
        await create_server(settings, role, host, port).serve([listener])


async def _migrate(settings: "Settings") -> list[str]:
    from app.db import migrate, open_database

    async with open_database(settings.pg, application_name="orders-migrate") as database:
        await require_answer(database)
        return await migrate(database)
