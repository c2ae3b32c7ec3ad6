"""The commands of `python -m app`. What is in a command's way is told in words, with exit code 2 or 3."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import asdict
from typing import Annotated, Any, NoReturn, TypeVar

import structlog
import typer
from pydantic.alias_generators import to_camel
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from uvicorn.loops.auto import auto_loop_factory

from app.db import Database, migrate, open_database
from app.demo.show import run_demo
from app.demo.stage import DemoFailed
from app.embedded import EmbeddedPostgresError
from app.main import create_app, create_server
from app.observability.logs import configure_logs
from app.occupied import Occupied, hold, listen, no_address
from app.orders.intervene import NotFailed, retry_step, step_of
from app.orders.invariants import INVARIANTS, Violation, violations
from app.orders.order import WrongMove
from app.sandbox import server as sandbox_server
from app.settings import ConfigError, Settings, load_settings
from app.tasks.task import ACTIVE, TaskStatus
from app.wiring import Role, Wiring, check_wiring, open_wiring

log = structlog.get_logger()

T = TypeVar("T")

NOT_COMPLETED, CONFIG_REFUSED, CANNOT_RUN, TERMINATED = 1, 2, 3, 128 + signal.SIGTERM
VIOLATED = 1
PIPE_WIDTH = 200

commands = typer.Typer(
    help="Takes orders in and brings each of them to its end.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
tasks = typer.Typer(help="Look at tasks; give a failed one another chance.", no_args_is_help=True)
commands.add_typer(tasks, name="tasks")


class CannotRun(Exception):
    """The command cannot do its work here and now; the message says why and what to do."""


def main() -> None:
    """Run the command that the arguments name."""
    try:
        commands(prog_name="python -m app")
    except ConfigError as error:
        _end(error, CONFIG_REFUSED)
    except (CannotRun, Occupied, EmbeddedPostgresError, DemoFailed) as error:
        _end(error, CANNOT_RUN)
    except asyncio.CancelledError:
        sys.exit(TERMINATED)


@commands.command("serve")
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
    settings = _load({"ORDERS_API__HOST": host, "ORDERS_API__PORT": port})
    check_wiring(settings)
    configure_logs(settings.log.level, settings.log.format)
    embedded = settings.pg.dsn is None
    with (
        listen(settings.api.host, settings.api.port) as listener,
        hold(settings.pg.data_dir, alone=False) if embedded else nullcontext(),
        suppress(asyncio.CancelledError),  # a SIGTERM before the server was there to hear it
    ):
        _run(_serve(settings, role, listener))


@commands.command("demo")
def demo(
    once: Annotated[bool, typer.Option("--once", help="End when all are final: 0 if all were completed.")] = False,
    dsn: Annotated[str | None, typer.Option(help="A PostgreSQL to use and migrate, not the embedded one.")] = None,
) -> None:
    """Start everything on this machine and watch sample orders on their way."""
    terminal = sys.stdout.isatty()
    completed = _run(run_demo(Console(force_terminal=terminal), once=once, dsn=dsn))
    if once and not completed:
        raise typer.Exit(NOT_COMPLETED)


@commands.command("sandbox")
def sandbox(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="Port to listen on, 0 for a free one.")] = 8100,
) -> None:
    """Play all five external systems, each under its name; PUT /{name}/_control changes how one behaves."""
    try:
        sandbox_server.run(host, port)
    except OSError as error:
        raise no_address(host, port, error) from error


@commands.command("migrate")
def migrate_schema() -> None:
    """Bring the database's schema up to date; any number may do so at a time."""
    settings = _load()
    configure_logs(settings.log.level, settings.log.format)
    applied = _run(_migrate(settings))
    typer.echo(f"applied {', '.join(applied)}" if applied else "the schema is up to date")


@commands.command("check-config")
def check_config() -> None:
    """Check the configuration and show how the connection pools add up."""
    settings = _load()
    check_wiring(settings)
    table = Table("system", "max_concurrent", "pool", "sum", "limit")
    for row in settings.sizing():
        table.add_row(row.system, str(row.max_concurrent), str(row.pool), str(row.total), f"{row.limit:g}")
    _show(table)
    typer.echo(f"pools: {row.total} <= pg.pool.max/2 = {settings.pg.pool.max}/2 = {row.limit:g}")
    typer.echo("the configuration is accepted")


@commands.command("invariants")
def check_invariants(as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False) -> None:
    """Check what must hold in the data, also while the service runs: 0 when it does, else 1 and what does not.

    Reads every order, task and event. A large database may need a larger pg.statement_timeout for this.
    """
    found = _run(_violations(_load()))
    if as_json:
        rows = [{"invariant": v.invariant.name, "orderId": v.order_id, "found": v.found} for v in found]
        typer.echo(json.dumps(rows, ensure_ascii=False, indent=2))
    elif found:
        table = Table("invariant", "order", "found", "it would mean that")
        for v in found:
            table.add_row(v.invariant.name, str(v.order_id), escape(v.found), v.invariant.why)
        _show(table)
    else:
        typer.echo(f"all {len(INVARIANTS)} invariants hold")
    if found:
        raise typer.Exit(VIOLATED)


@commands.command("openapi")
def openapi() -> None:
    """Print the API's OpenAPI document."""
    typer.echo(json.dumps(create_app(_load()).openapi(), ensure_ascii=False, indent=2))


@tasks.command("list")
def list_tasks(
    task: Annotated[str | None, typer.Option(help="Only this task table.")] = None,
    status: Annotated[list[TaskStatus] | None, typer.Option(help="Only this status; may be repeated.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many of each table.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Show tasks, the newest of each table first."""
    found = _run(_list(_load(), task, status or list(TaskStatus), limit))
    if as_json:
        typer.echo(json.dumps(found, default=lambda time: time.isoformat(), indent=2))
        return
    table = Table("task", "id", "order", "status", "attempts", "due in", "last error")
    for row in found:
        due = f"{row['dueIn']:.0f} s" if TaskStatus(row["status"]) in ACTIVE else ""
        values = (row[key] for key in ("task", "taskId", "orderId", "status", "attempts"))
        table.add_row(*map(str, values), due, escape(row["lastError"] or ""))
    _show(table)


@tasks.command("retry")
def retry_task(task: str, task_id: int) -> None:
    """Give a FAILED task its attempts back, due now, and its order the status it failed from."""
    typer.echo(_run(_retry(_load(), task, task_id)))


def _load(changed: Mapping[str, object] | None = None) -> Settings:
    """The settings, with the values `changed` on the command line; None leaves one as it is. Raises ConfigError."""
    given = {name: str(value) for name, value in (changed or {}).items() if value is not None}
    return load_settings({**os.environ, **given})


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvicorn's event loop. SIGTERM cancels the work, unless a server in it takes the signals over."""

    async def stoppable() -> T:
        loop, this = asyncio.get_running_loop(), asyncio.current_task()
        assert this is not None
        cancel = this.cancel
        signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(cancel))
        return await work

    before = signal.getsignal(signal.SIGTERM)
    try:
        with asyncio.Runner(loop_factory=auto_loop_factory()) as runner:
            return runner.run(stoppable())
    finally:
        signal.signal(signal.SIGTERM, before)


async def _serve(settings: Settings, role: Role, listener: socket.socket) -> None:
    async with open_database(settings.pg, application_name="orders-start") as database:
        if settings.pg.dsn is None:
            await migrate(database)
        elif (problem := await database.ping() or await database.schema_behind()) is not None:
            log.warning("not ready yet", problem=problem)
        await database.engine.dispose()
        host, port = listener.getsockname()[:2]
        log.info("serving", host=host, port=port, role=role)
        await create_server(settings, role, host, port).serve([listener])


async def _migrate(settings: Settings) -> list[str]:
    async with open_database(settings.pg, application_name="orders-migrate") as database:
        await _require_answer(database)
        return await migrate(database)


async def _violations(settings: Settings) -> list[Violation]:
    async with _opened(settings) as wiring, wiring.database.engine.connect() as connection:
        return await violations(connection, settings.tasks, settings.events)


async def _list(settings: Settings, table: str | None, statuses: list[TaskStatus], limit: int) -> list[dict[str, Any]]:
    async with _opened(settings) as wiring:
        queues = wiring.queues.values() if table is None else [wiring.queues[_known(wiring, table)]]
        return [
            {"task": task.name, "orderId": order_id}
            | {to_camel(key): value for key, value in asdict(task).items() if key != "name"}
            for queue in queues
            for order_id, task in await queue.listing(statuses, limit)
        ]


async def _retry(settings: Settings, task: str, task_id: int) -> str:
    async with _opened(settings) as wiring:
        step = step_of(wiring.steps, _known(wiring, task))
        assert step is not None
        try:
            order = await retry_step(wiring.database.engine, wiring.queues, step, task_id)
        except WrongMove as error:
            raise CannotRun(f"{error}: nothing was changed") from None
        except NotFailed:
            raise CannotRun(f"{task} has no FAILED task {task_id}: nothing was changed") from None
    return f"task {task_id} of {task} is due now, order {order.id} is {order.status}"


@asynccontextmanager
async def _opened(settings: Settings) -> AsyncIterator[Wiring]:
    """The wiring without background loops, over a database with the right schema. Raises CannotRun."""
    async with open_wiring(settings, "api") as wiring:
        await _require_answer(wiring.database)
        if settings.pg.dsn is None:
            await migrate(wiring.database)
        elif (behind := await wiring.database.schema_behind()) is not None:
            raise CannotRun(f"{behind} (python -m app migrate)")
        yield wiring


async def _require_answer(database: Database) -> None:
    if (problem := await database.ping()) is not None:
        raise CannotRun(f"the database cannot be reached: {problem}. See pg.dsn (ORDERS_PG__DSN)")


def _known(wiring: Wiring, task: str) -> str:
    if task not in wiring.queues:
        raise typer.BadParameter(f"there is no task table {task}; there are {', '.join(wiring.queues)}")
    return task


def _show(table: Table) -> None:
    terminal = sys.stdout.isatty()
    Console(force_terminal=terminal, width=None if terminal else PIPE_WIDTH).print(table)


def _end(error: Exception, code: int) -> NoReturn:
    typer.echo(error, err=True)
    sys.exit(code)
