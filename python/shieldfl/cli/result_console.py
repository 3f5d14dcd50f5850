"""Where results are printed: a terminal's width, COLUMNS in a pipe, and tables that are cut into parts to fit."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator, Sequence
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

_PIPE_COLUMNS = 120
_UNLIMITED_WIDTH = 10_000


class ResultConsole(Console):
    """Standard output without mark-up. Tables that are too wide come in parts, each with the first column.

    A terminal breaks long sentences itself. In a pipe they stay on one line, unless COLUMNS is set: then nothing is
    longer than that. Tables take 120 columns there.
    """

    def __init__(self) -> None:
        stated = os.environ.get("COLUMNS", "")
        self._keeps_columns = False
        super().__init__(highlight=False, markup=False)
        if not self.is_terminal:
            self._keeps_columns = stated.isdigit() and int(stated) > 0
            self.width = int(stated) if self._keeps_columns else _PIPE_COLUMNS

    def print(self, *objects: Any, **options: Any) -> None:
        """Print; tables in as many parts as the width asks for."""
        if self._keeps_columns:
            options.pop("soft_wrap", None)
        if len(objects) == 1 and isinstance(objects[0], Table):
            for part in _parts(objects[0], self):
                super().print(part, **options)
            return
        super().print(*objects, **options)


def result_console() -> ResultConsole:
    """Return a console for results."""
    return ResultConsole()


def result_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]] = (), words: Container[str] = ()
) -> Table:
    """Return a table; the first column and those of ``words`` are text, the others figures, which are never broken."""
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for number, head in enumerate(heads):
        text = number == 0 or head in words
        table.add_column(head, justify="left" if text else "right", overflow="fold", no_wrap=not text)
    for cells in rows:
        table.add_row(*cells)
    return table


def _parts(table: Table, console: Console) -> Iterator[Table]:
    """Yield as few tables as show all columns, each with the first one."""
    start, count = 1, len(table.columns)
    if _width(table, console) <= console.width or count <= 2:
        yield table
        return
    while start < count:
        end = count
        while end > start + 1 and _width(_columns(table, start, end), console) > console.width:
            end -= 1
        yield _columns(table, start, end)
        start = end


def _columns(table: Table, start: int, end: int) -> Table:
    part = Table(box=table.box, header_style=table.header_style, pad_edge=table.pad_edge)
    chosen = [table.columns[0], *table.columns[start:end]]
    for column in chosen:
        part.add_column(
            column.header, justify=column.justify, overflow=column.overflow, no_wrap=column.no_wrap
        )
    for row, cells in zip(table.rows, zip(*(column.cells for column in chosen), strict=True), strict=True):
        part.add_row(*cells, style=row.style, end_section=row.end_section)
    return part


def _width(table: Table, console: Console) -> int:
    """Return the columns that a table takes where nothing is cut or broken."""
    return Measurement.get(console, console.options.update(max_width=_UNLIMITED_WIDTH), table).maximum
