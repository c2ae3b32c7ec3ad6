"""Whose hand it is: what operators do is kept with their name and their reason."""

import re
from contextlib import suppress
from getpass import getuser
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.opened import opened, run
from app.cli.shown import AsJson, Limit, moment, print_json, print_table

if TYPE_CHECKING:
    from app.audit import By, OperatorAction

LONGEST_REASON = 500

EXAMPLES = """
[dim]python -m app actions --limit 10[/]
"""


def _reason(text: str | None) -> str | None:
    from app.api.schemas.wire import PRINTABLE

    if text is not None and not (len(text) <= LONGEST_REASON and re.fullmatch(PRINTABLE, text)):
        raise typer.BadParameter(f"a reason has 1 to {LONGEST_REASON} characters, none of them a control character")
    return text


Reason = Annotated[str | None, typer.Option(callback=_reason, help="Why, for those who read about it later.")]


def by(reason: str | None) -> "By":
    """The user of this machine, as the one who acts."""
    from app.audit import By

    user = "somebody"
    with suppress(OSError, KeyError):  # a container's user need not have a name
        user = getuser()
    return By(f"{user}, command line", reason)


def list_actions(limit: Limit = 50, as_json: AsJson = False) -> None:
    """Show what operators did and why, here and over HTTP, the latest first."""
    found = run(_list(limit))
    if as_json:
        from dataclasses import asdict

        print_json([asdict(action) for action in found])
    else:
        columns = ("at", "who", "did", "what", "why", "replica")
        print_table(columns, ((moment(a.at), a.caller, a.action, a.target, a.reason, a.replica) for a in found))


async def _list(limit: int) -> "list[OperatorAction]":
    from app import audit

    async with opened() as wiring, wiring.database.engine.connect() as conn:
        return await audit.page(conn, most=limit)
