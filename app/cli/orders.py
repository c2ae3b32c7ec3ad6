"""Orders: how far they have come, and the end that an operator may put to one."""

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.actions import Reason
from app.cli.opened import CannotRun, opened, run
from app.cli.shown import LARGEST_ID, AsJson, Limit, moment, print_json, print_table, say
from app.cli.tasks import cancel_at
from app.orders.order import OrderStatus

if TYPE_CHECKING:
    from app.api.schemas import OrderRow, OrderView
    from app.api.schemas.orders import Amount
    from app.orders.read import OrderWithSteps
    from app.wiring import Wiring

commands = typer.Typer(help="Look at orders, cancel one.", no_args_is_help=True)

OrderId = Annotated[int, typer.Argument(metavar="ID", min=1, max=LARGEST_ID, help="The order's id.")]

LIST_EXAMPLES = """
[dim]python -m app orders list --status PAYMENT_FAILED --status RECEIPT_FAILED[/]

[dim]python -m app orders list --customer c-42 --json[/]
"""
SHOW_EXAMPLES = """
[dim]python -m app orders show 1[/]
"""
CANCEL_EXAMPLES = """
[dim]python -m app orders cancel 1 --reason "asked for by phone"[/]
"""


@commands.command("list", epilog=LIST_EXAMPLES)
def list_all(
    status: Annotated[list[OrderStatus] | None, typer.Option(help="Only this status; may be repeated.")] = None,
    customer: Annotated[str | None, typer.Option(help="Only this customer's.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Show orders, the newest first."""
    found = run(_list(status, customer, limit))
    if as_json:
        print_json(found)
    else:
        columns = ("order", "customer", "total", "status", "created", "updated")
        values = (
            (o.order_id, o.customer_id, _money(o.total), o.status, moment(o.created_at), moment(o.updated_at))
            for o in found
        )
        print_table(columns, values)


@commands.command("show", epilog=SHOW_EXAMPLES)
def show_order(order_id: OrderId, as_json: AsJson = False) -> None:
    """Show an order and its steps: which task, at which system, how often tried, and what went wrong last."""
    view, errors = run(_show(order_id))
    if as_json:
        print_json(view)
        return
    say(f"order {view.order_id} is {view.status}" + (f": {view.reason}" if view.reason else ""))
    say(f"customer {view.customer_id}, {_money(view.total)}, {moment(view.created_at)} UTC")
    columns = ("task", "id", "system", "status", "attempts", "next attempt", "last error")
    values = (
        (s.task, s.task_id, s.system, s.status, s.attempts, moment(s.next_attempt_at), errors[s.task])
        for s in view.steps
    )
    print_table(columns, values)


@commands.command("cancel", epilog=CANCEL_EXAMPLES)
def cancel(order_id: OrderId, reason: Reason = None, as_json: AsJson = False) -> None:
    """Cancel an order, which is possible as long as no payment can have been registered."""
    cancelled = run(_cancel(order_id, reason))
    if as_json:
        print_json(cancelled)
    else:
        typer.echo(f"order {cancelled.order_id} is {cancelled.status}")


async def _list(statuses: list[OrderStatus] | None, customer: str | None, limit: int) -> "list[OrderRow]":
    from app.api.schemas import order_row
    from app.orders.read import list_orders
    from app.tasks.queue import NEWEST

    async with opened() as wiring:
        customers = None if customer is None else [customer]
        found = await list_orders(
            wiring.database.engine, before=NEWEST, most=limit, statuses=statuses, customers=customers
        )
    return [order_row(record) for record in found]


async def _show(order_id: int) -> "tuple[OrderView, dict[str, str | None]]":
    """The order as the API shows it, and by task table its last error in full."""
    async with opened() as wiring:
        found = await _found(wiring, order_id)
        return _view(wiring, found), {table: task.last_error for table, task in found.tasks.items()}


async def _cancel(order_id: int, reason: str | None) -> "OrderView":
    async with opened() as wiring:
        found = await _found(wiring, order_id)
        *_, task = found.tasks.values()  # the present step's
        await cancel_at(wiring, task.name, task.task_id, order_id, reason)
        return _view(wiring, await _found(wiring, order_id))


async def _found(wiring: "Wiring", order_id: int) -> "OrderWithSteps":
    from app.orders.read import read_order

    found = await read_order(wiring.database.engine, list(wiring.queues), order_id)
    if found is None:
        raise CannotRun(f"there is no order {order_id}: orders list shows them")
    return found


def _view(wiring: "Wiring", found: "OrderWithSteps") -> "OrderView":
    from app.api.schemas import order_view, step_view

    systems = {step.table: step.system for step in wiring.steps}
    return order_view(found.record, [step_view(task, systems[table]) for table, task in found.tasks.items()])


def _money(amount: "Amount") -> str:
    return f"{amount.amount} {amount.currency}"
