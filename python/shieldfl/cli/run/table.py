"""The final table of ``shieldfl run``: one column for each method."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from shieldfl.cli.result_console import result_console, result_table
from shieldfl.simulation.report.paper_figures import ComparedFigure
from shieldfl.simulation.report.summary import (
    Section,
    compared_rows,
    describe_run,
    findings,
    footnotes,
    remarks,
    summarise,
)
from shieldfl.simulation.run_result import RunResult

__all__ = ["print_compared", "print_run"]


def print_run(result: RunResult, all_figures: bool = False) -> None:
    """Print what came out, and the figures side by side, on standard output: those that decide, or all."""
    console = result_console()
    console.print(describe_run(result), soft_wrap=True)
    if result.interrupted is not None:
        console.print(f"Not complete: {result.interrupted}.", soft_wrap=True)
    for sentence in findings(result):
        console.print(sentence, soft_wrap=True)
    if all_figures:
        console.print(_table(result, summarise(result)))
    else:
        rows = ((row.label, *row.cells) for row in compared_rows(result))
        table = result_table(["", *(method.method for method in result.methods)], rows)
        table.columns[0].style = "cyan"
        console.print(table)
    if len(result.methods) > 1:
        console.print(f"× compares with {result.methods[0].method}.", soft_wrap=True)
    for names, note in remarks(result) if all_figures else footnotes(result):
        console.print(f"{names}: {note}", soft_wrap=True)


def _table(result: RunResult, sections: Sequence[Section]) -> Table:
    table = result_table(["", *(method.method for method in result.methods)])
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
    heads = ("method", "figure", "ours", "the paper's", "source")
    table = result_table(heads, (figure.cells() for figure in figures), ("figure", "source"))
    console = result_console()
    console.print("Ours beside the paper's")
    console.print(table)
