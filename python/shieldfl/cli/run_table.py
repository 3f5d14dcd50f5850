"""The final table of ``shieldfl run``: one column for each method."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shieldfl.simulation.results import RunResult
from shieldfl.simulation.summary import describe_run, summarise

__all__ = ["print_run", "table_console"]

_UNLIMITED_WIDTH = 10_000


def print_run(result: RunResult) -> None:
    """Print the figures side by side on standard output."""
    console = table_console()
    console.print(describe_run(result))
    console.print(_table(result))
    if len(result.methods) > 1:
        console.print(f"× compares with {result.methods[0].method}.")
    for method in result.methods:
        for note in method.notes:
            console.print(f"{method.method}: {note}")


def table_console() -> Console:
    """Return a console for tables on standard output."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        # A file has no width that columns would have to be cut to.
        console = Console(highlight=False, markup=False, width=_UNLIMITED_WIDTH)
    return console


def _table(result: RunResult) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("", no_wrap=True)
    for method in result.methods:
        table.add_column(method.method, justify="right", no_wrap=True)
    for section in summarise(result):
        table.add_row(Text(section.title, style="bold cyan"))
        for row in section.rows:
            table.add_row(f"  {row.label}", *row.cells)
        table.add_section()
    return table
