"""Ours beside the paper's: the table that ends an experiment."""

from __future__ import annotations

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from shieldfl.cli.result_console import result_console
from shieldfl.simulation.report.paper_figures import ComparedFigure

__all__ = ["print_compared"]


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
