"""Tasks: what the service has still to do, and what it could not."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.actions import Reason, by
from app.cli.opened import CannotRun, opened, run
from app.cli.shown import LARGEST_ID, AsJson, Limit, moment, print_json, print_table
from app.tasks.task import ACTIVE, TaskStatus

if TYPE_CHECKING:
    from app.api.schemas import TaskRow
    from app.wiring import Wiring

commands = typer.Typer(help="Look at tasks, give failed ones another chance, withdraw one.", no_args_is_help=True)

DEFAULT_FILE = Path(__file__).resolve().parents[2] / "config" / "default.yml"


def _tables() -> list[str]:
    """The tables' names, for a shell that completes them: at once, without the code behind them."""
    import yaml

    return [name for name in yaml.safe_load(DEFAULT_FILE.read_text())["tasks"] if name != "default"]


Table = Annotated[str, typer.Argument(metavar="TABLE", autocompletion=_tables, help="The task table, as payment_task.")]
TaskId = Annotated[int, typer.Argument(metavar="ID", min=1, max=LARGEST_ID, help="The task's id.")]
TaskIds = Annotated[list[int], typer.Argument(metavar="ID...", min=1, max=LARGEST_ID, help="The tasks' ids.")]

LIST_EXAMPLES = """
[dim]python -m app tasks list --status FAILED[/]  what waits for an operator

[dim]python -m app tasks list --task payment_task --json | jq '.[].lastError'[/]
"""
RETRY_EXAMPLES = """
[dim]python -m app tasks retry payment_task 17 --reason "the bank is back, INC-204"[/]
"""
CANCEL_EXAMPLES = """
[dim]python -m app tasks cancel order_confirmation_task 17 --reason "asked for by phone"[/]
"""


@commands.command("list", epilog=LIST_EXAMPLES)
def list_tasks(
    task: Annotated[str | None, typer.Option(autocompletion=_tables, help="Only this task table.")] = None,
    status: Annotated[list[TaskStatus] | None, typer.Option(help="Only this status; may be repeated.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Show tasks, the newest of each table first; the limit counts for each table."""
    found = run(_list(task, status or list(TaskStatus), limit))
    if as_json:
        print_json(found)
    else:
        columns = ("task", "id", "order", "status", "attempts", "due in", "last error")
        values = ((t.task, t.task_id, t.order_id, t.status, t.attempts, _due(t), t.last_error) for t in found)
        print_table(columns, values)


@commands.command("show")
def show_task(task: Table, task_id: TaskId, as_json: AsJson = False) -> None:
    """Show one task with all that is known about it."""
    found = run(_show(task, task_id))
    if as_json:
        print_json(found)
    else:
        shown = (
            *(("task", found.task), ("id", found.task_id), ("order", found.order_id), ("status", found.status)),
            *(("attempts", found.attempts), ("due in", _due(found)), ("last error", found.last_error)),
            *(("created", moment(found.created_at)), ("updated", moment(found.updated_at))),
        )
        print_table(("", ""), shown)


@commands.command("retry", epilog=RETRY_EXAMPLES)
def retry_tasks(task: Table, task_ids: TaskIds, reason: Reason = None, as_json: AsJson = False) -> None:
    """Give FAILED tasks their attempts back, due now, and their orders the status they failed from.

    Each on its own: those that cannot be retried are named, and do not hold up the others.
    """
    retried, refused = run(_retry(task, task_ids, reason))
    if as_json:
        print_json(retried)
    else:
        for row in retried:
            typer.echo(f"task {row.task_id} of {task} is due now, its order {row.order_id} goes on")
    if refused:
        raise CannotRun("\n".join(refused))


@commands.command("cancel", epilog=CANCEL_EXAMPLES)
def cancel_task(task: Table, task_id: TaskId, reason: Reason = None, as_json: AsJson = False) -> None:
    """Give a task up, open or FAILED, by cancelling its order.

    A task is nothing without its order, so this is `orders cancel` for those who hold a task's id. It is possible as
    long as no payment can have been registered; a later step's task is to be retried, or left FAILED.
    """
    withdrawn = run(_cancel(task, task_id, reason))
    if as_json:
        print_json(withdrawn)
    else:
        typer.echo(f"task {task_id} of {task} is withdrawn, order {withdrawn.order_id} is CANCELLED")


async def _list(table: str | None, statuses: list[TaskStatus], limit: int) -> "list[TaskRow]":
    from app.api.schemas import task_row

    async with opened() as wiring:
        tables = wiring.queues if table is None else [_known(wiring, table)]
        return [
            task_row(order_id, task)
            for name in tables
            for order_id, task in await wiring.queues[name].listing(statuses, limit)
        ]


async def _show(table: str, task_id: int) -> "TaskRow":
    async with opened() as wiring:
        return await _found(wiring, table, task_id)


async def _retry(table: str, task_ids: list[int], reason: str | None) -> "tuple[list[TaskRow], list[str]]":
    from app.orders.intervene import NotFailed, retry_step, step_of
    from app.orders.order import WrongMove

    retried, refused = [], []
    async with opened() as wiring:
        step = step_of(wiring.steps, _known(wiring, table))
        assert step is not None
        for task_id in task_ids:
            try:
                await retry_step(wiring.database.engine, wiring.queues, step, task_id, by(reason))
            except WrongMove as error:
                refused.append(f"{error}; nothing was changed")
            except NotFailed:
                hint = "tasks list --status FAILED shows them"
                refused.append(f"{table} has no FAILED task {task_id}: nothing was changed. {hint}")
            else:
                retried.append(await _found(wiring, table, task_id))
    return retried, refused


async def _cancel(table: str, task_id: int, reason: str | None) -> "TaskRow":
    async with opened() as wiring:
        task = await _found(wiring, table, task_id)
        if task.status is TaskStatus.COMPLETED:
            raise CannotRun(f"task {task_id} of {table} is COMPLETED: nothing was changed")
        await cancel_at(wiring, table, task_id, task.order_id, reason)
        return await _found(wiring, table, task_id)


async def cancel_at(wiring: "Wiring", table: str, task_id: int, order_id: int, reason: str | None) -> None:
    """Cancel the order whose present task this is. Raises CannotRun."""
    from app.orders.intervene import cancel_step, step_of
    from app.orders.order import WrongMove

    step = step_of(wiring.steps, table)
    assert step is not None
    try:
        await cancel_step(wiring.database.engine, wiring.queues, step, task_id, order_id, by=by(reason))
    except WrongMove as error:
        raise CannotRun(f"{error}; nothing was changed") from None


async def _found(wiring: "Wiring", table: str, task_id: int) -> "TaskRow":
    from app.api.schemas import task_row

    found = await wiring.queues[_known(wiring, table)].find(task_id)
    if found is None:
        raise CannotRun(f"{table} has no task {task_id}: tasks list shows them")
    return task_row(*found)


def _known(wiring: "Wiring", table: str) -> str:
    if table not in wiring.queues:
        raise typer.BadParameter(f"there is no task table {table}; there are {', '.join(wiring.queues)}")
    return table


def _due(task: "TaskRow") -> str | None:
    return f"{task.due_in:.0f} s" if task.status in ACTIVE else None
