"""How commands show what they found: a table for people, JSON for programs."""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.text import legible

if TYPE_CHECKING:
    from pydantic import BaseModel

PIPE_WIDTH = 200

LARGEST_ID = 2**63 - 1
"""PostgreSQL's bigint ends there."""

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Limit = Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")]

STYLES = {
    **dict.fromkeys(("COMPLETED", "PUBLISHED", "up", "closed"), "green"),
    **dict.fromkeys(("FAILED", "PARKED", "REJECTED", "PAYMENT_DECLINED", "down", "open", "isolated"), "red"),
    "half_open": "yellow",
}


def print_json(found: Any) -> None:
    """Print what JSON can hold, and pydantic's models as the API would."""
    text = json.dumps(found, default=_plain, ensure_ascii=False, indent=2)
    typer.echo("".join(map(_escaped, text)))


def say(line: str) -> None:
    """Print a line that has foreign text in it."""
    typer.echo(legible(line, limit=None))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print rows under their columns, or `none`; None is an empty cell, and statuses have colours on a terminal."""
    terminal = sys.stdout.isatty()
    table = Table(*columns)
    for row in rows:
        table.add_row(*map(_cell, row))
    Console(force_terminal=terminal, width=None if terminal else PIPE_WIDTH).print(table if table.rows else "none")


def moment(time: datetime | None) -> str:
    """A time to the second, in UTC as PostgreSQL's clock has it."""
    return "" if time is None else f"{time:%Y-%m-%d %H:%M:%S}"


def _cell(value: object) -> Text:
    text = "" if value is None else legible(str(value), limit=None)
    return Text(text, "red" if text.endswith("_FAILED") else STYLES.get(text, ""))


def _escaped(character: str) -> str:
    """As JSON spells what a terminal would obey; Cyrillic stays as it is."""
    return character if character.isprintable() or character == "\n" else json.dumps(character)[1:-1]


def _plain(value: "BaseModel | datetime") -> Any:
    return value.isoformat() if isinstance(value, datetime) else value.model_dump(mode="json", by_alias=True)
