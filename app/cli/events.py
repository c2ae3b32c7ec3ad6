"""Events: what the outbox has told the world, still has to, and could not."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer

from app.cli.actions import Reason, by
from app.cli.opened import CannotRun, opened, run
from app.cli.shown import LARGEST_ID, AsJson, Limit, moment, print_json, print_table

if TYPE_CHECKING:
    from app.outbox.store import EventView


class EventStatus(StrEnum):
    PENDING = "PENDING"
    PUBLISHED = "PUBLISHED"
    PARKED = "PARKED"


commands = typer.Typer(help="Look at events, publish parked ones again.", no_args_is_help=True)

LIST_EXAMPLES = """
[dim]python -m app events list --status PARKED[/]  what could not be published

[dim]python -m app events list --order 1[/]  all that was told about an order
"""
RETRY_EXAMPLES = """
[dim]python -m app events list --status PARKED --json | jq -r '.[].eventId' | xargs python -m app events retry[/]
"""


@commands.command("list", epilog=LIST_EXAMPLES)
def list_events(
    status: Annotated[list[EventStatus] | None, typer.Option(help="Only this status; may be repeated.")] = None,
    order: Annotated[int | None, typer.Option(min=1, max=LARGEST_ID, help="Only this order's.")] = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """Show events, the newest first."""
    found = run(_list(status or list(EventStatus), order, limit))
    if as_json:
        print_json([_named(event) for event in found])
    else:
        columns = ("event", "order", "sequence", "type", "status", "attempts", "published", "last error")
        values = (
            (e.event_id, e.order_id, e.sequence, e.type, e.status, e.attempts, moment(e.published_at), e.last_error)
            for e in found
        )
        print_table(columns, values)


@commands.command("retry", epilog=RETRY_EXAMPLES)
def retry_events(
    event_ids: Annotated[list[UUID], typer.Argument(metavar="ID...", help="The events' ids.")],
    reason: Reason = None,
    as_json: AsJson = False,
) -> None:
    """Give PARKED events their attempts back, due now.

    Each on its own: those that are not PARKED are named, and do not hold up the others.
    """
    retried, refused = run(_retry([str(event_id) for event_id in event_ids], reason))
    if as_json:
        print_json([{"eventId": event_id, "orderId": order_id} for event_id, order_id in retried.items()])
    else:
        for event_id, order_id in retried.items():
            typer.echo(f"event {event_id} of order {order_id} is due now")
    if refused:
        raise CannotRun("\n".join(refused))


async def _list(statuses: list[EventStatus], order: int | None, limit: int) -> "list[EventView]":
    from app.outbox import store

    async with opened() as wiring:
        return await store.listing(wiring.database.engine, statuses, limit, order)


async def _retry(event_ids: list[str], reason: str | None) -> tuple[dict[str, int], list[str]]:
    from app.outbox import store

    retried, refused = {}, []
    async with opened() as wiring:
        for event_id in event_ids:
            if (order_id := await store.revive(wiring.database.engine, event_id, by(reason))) is None:
                refused.append(f"there is no PARKED event {event_id}: nothing was changed")
            else:
                retried[event_id] = order_id
    return retried, refused


def _named(event: "EventView") -> dict[str, object]:
    from pydantic.alias_generators import to_camel

    return {to_camel(key): value for key, value in event._asdict().items()}
