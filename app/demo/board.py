"""The orders on the screen: a table that lives on a terminal, a line for each change elsewhere."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from app.api.schemas import StepView
from app.demo.way import PlacedOrder

STEPS = {"insurance": "confirm", "sber": "pay", "receipt": "receipt", "odnakassa": "book", "orderbook": "record"}
"""The word for each system's step: with the systems' names, the table would not fit 80 columns."""

MARKS = {
    "PENDING": ("…", "yellow"),
    "IN_PROGRESS": ("…", "yellow"),
    "COMPLETED": ("✓", "green"),
    "FAILED": ("✗", "red"),
}
NOT_BEGUN = ("·", "dim")
ASCII = str.maketrans({"…": "~", "✓": "+", "✗": "!", "·": "."})


@contextmanager
def board(console: Console, orders: Sequence[PlacedOrder]) -> Iterator[Callable[[], None]]:
    """Show the orders; gives the function that shows them again after they have changed."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield _changes(console, orders)
        return
    ascii_only = console.options.ascii_only
    with Live(table(orders, ascii_only=ascii_only), console=console, refresh_per_second=10) as live:
        yield lambda: live.update(table(orders, ascii_only=ascii_only))


def table(orders: Sequence[PlacedOrder], *, ascii_only: bool) -> Table:
    shown = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    shown.add_column("order", justify="right")
    shown.add_column("customer")
    shown.add_column("total", justify="right", no_wrap=True)
    for word in STEPS.values():
        shown.add_column(word, justify="center", no_wrap=True)
    shown.add_column("status", no_wrap=True, min_width=14)
    shown.add_column("took", justify="right", no_wrap=True, min_width=5)
    for order in orders:
        view, steps = order.view, {step.system: step for step in order.view.steps}
        marks = [_mark(steps.get(system)) for system in STEPS]
        shown.add_row(
            str(view.order_id),
            view.customer_id,
            f"{view.total.amount} {view.total.currency}",
            *(Text(mark.translate(ASCII) if ascii_only else mark, style) for mark, style in marks),
            Text(view.status, "green" if order.completed else "red" if view.final else ""),
            f"{order.seconds:.1f}s",
        )
    return shown


def _mark(step: StepView | None) -> tuple[str, str]:
    if step is None:
        return NOT_BEGUN
    mark, style = MARKS[step.status]
    return (f"{mark}{step.attempts}" if step.attempts > 1 and step.status != "COMPLETED" else mark, style)


def _changes(console: Console, orders: Sequence[PlacedOrder]) -> Callable[[], None]:
    told: dict[int, str] = {}

    def show() -> None:
        for order in orders:
            view = order.view
            if told.get(view.order_id) != view.status:
                told[view.order_id] = view.status
                since = time.monotonic() - orders[0].placed_at
                console.print(f"{since:5.1f}s  order {view.order_id}  {view.status}", highlight=False)

    show()
    return show
