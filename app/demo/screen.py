"""What the demo says."""

from rich.console import Console

from app.demo.samples import KNOBS
from app.demo.stage import Stage


def introduce(console: Console, stage: Stage) -> None:
    """Say what runs, and where."""
    pg = stage.settings.pg
    whose = "given with --dsn" if pg.dsn else "a configured pg.dsn is left alone, --dsn chooses one"
    for what, where in (
        ("database", f"{pg.place}; {whose}"),
        ("systems", f"{stage.sandbox} plays {', '.join(KNOBS)}"),
        ("service", stage.url),
        ("log", str(stage.log)),
    ):
        say(console, f"  {what:9} {where}")
    for taken in stage.taken:
        say(console, f"  port {taken} is taken by another process, hence the next free one")


def say(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)
