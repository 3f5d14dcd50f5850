"""The final table of ``shieldfl run``: one column for each method."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from shieldfl.simulation.results import RunResult
from shieldfl.simulation.summary import Section, describe_run, remarks, summarise

__all__ = ["print_run", "table_console"]

_UNLIMITED_WIDTH = 10_000


def print_run(result: RunResult) -> None:
    """Print the figures side by side on standard output."""
    console = table_console()
    console.print(describe_run(result))
    if result.interrupted is not None:
        console.print(f"Not complete: {result.interrupted}.")
    for table in _tables(result, console):
        console.print(table)
    if len(result.methods) > 1:
        console.print(f"× compares with {result.methods[0].method}.")
    for names, note in remarks(result):
        console.print(f"{names}: {note}")


def table_console() -> Console:
    """Return a console for tables on standard output."""
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        # A file has no width that columns would have to be cut to.
        console = Console(highlight=False, markup=False, width=_UNLIMITED_WIDTH)
    return console


def _tables(result: RunResult, console: Console) -> list[Table]:
    """Return as few tables one below the other as the methods need on a console of this width."""
    sections = summarise(result)
    tables = []
    start = 0
    while start < len(result.methods):
        end = len(result.methods)
        table = _table(result, sections, slice(start, end))
        while end > start + 1 and _width(table, console) > console.width:
            end -= 1
            table = _table(result, sections, slice(start, end))
        tables.append(table)
        start = end
    return tables


def _width(table: Table, console: Console) -> int:
    return Measurement.get(console, console.options.update(max_width=_UNLIMITED_WIDTH), table).maximum


def _table(result: RunResult, sections: Sequence[Section], columns: slice) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("", no_wrap=True)
    for method in result.methods[columns]:
        table.add_column(method.method, justify="right", no_wrap=True)
    for section in sections:
        table.add_row(Text(section.title, style="bold cyan"))
        for row in section.rows:
            table.add_row(f"  {row.label}", *row.cells[columns])
        table.add_section()
    return table
