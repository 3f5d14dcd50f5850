"""The final table of ``shieldfl run``: one column for each method."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from shieldfl.cli.result_console import result_console
from shieldfl.simulation.report.paper_figures import ComparedFigure
from shieldfl.simulation.report.summary import Section, describe_run, remarks, summarise
from shieldfl.simulation.run_result import RunResult

__all__ = ["print_compared", "print_run"]


def print_run(result: RunResult) -> None:
    """Print the figures side by side on standard output."""
    console = result_console()
    console.print(describe_run(result), soft_wrap=True)
    if result.interrupted is not None:
        console.print(f"Not complete: {result.interrupted}.", soft_wrap=True)
    console.print(_table(result, summarise(result)))
    if len(result.methods) > 1:
        console.print(f"× compares with {result.methods[0].method}.", soft_wrap=True)
    for names, note in remarks(result):
        console.print(f"{names}: {note}", soft_wrap=True)


def _table(result: RunResult, sections: Sequence[Section]) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("", no_wrap=True)
    for method in result.methods:
        table.add_column(method.method, justify="right", no_wrap=True)
    for section in sections:
        table.add_row(Text(section.title, style="bold cyan"))
        for row in section.rows:
            table.add_row(f"  {row.label}", *row.cells)
        table.add_section()
    return table


def print_compared(figures: Sequence[ComparedFigure]) -> None:
    """Print a row for each figure on standard output; nothing where there are none."""
    if not figures:
        return
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for header, justify in (
        ("method", "left"),
        ("figure", "left"),
        ("ours", "right"),
        ("the paper's", "right"),
    ):
        table.add_column(header, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("source")
    for figure in figures:
        table.add_row(*figure.cells())
    console = result_console()
    console.print("Ours beside the paper's")
    console.print(table)
