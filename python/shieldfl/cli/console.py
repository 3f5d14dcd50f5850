"""Where a command's results go: tables that fit the width, a bar while it works, the file of ``--json``."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from shieldfl.lab.report import output_files

_PIPE_COLUMNS = 120
_UNLIMITED_WIDTH = 10_000


class ResultConsole(Console):
    """Standard output without mark-up. Tables that are too wide come in parts, each with the first column.

    A terminal breaks long sentences itself. In a pipe they stay on one line, unless COLUMNS is set: then
    nothing is longer than that. Tables take 120 columns there.
    """

    def __init__(self) -> None:
        stated = os.environ.get("COLUMNS", "")
        self._keeps_columns = False
        super().__init__(highlight=False, markup=False)
        if not self.is_terminal:
            self._keeps_columns = stated.isdigit() and int(stated) > 0
            self.width = int(stated) if self._keeps_columns else _PIPE_COLUMNS

    def print(self, *objects: Any, **options: Any) -> None:
        if self._keeps_columns:
            options.pop("soft_wrap", None)
        if len(objects) == 1 and isinstance(objects[0], Table):
            for part in _parts(objects[0], self):
                super().print(part, **options)
            return
        super().print(*objects, **options)

    def say(self, *lines: str) -> None:
        """Print each line; only a terminal, or COLUMNS, breaks it."""
        for line in lines:
            self.print(line, soft_wrap=True)


def result_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]] = (), words: Container[str] = ()
) -> Table:
    """Return a table. Its first column and ``words`` are text; the others are figures, never broken."""
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for number, head in enumerate(heads):
        text = number == 0 or head in words
        table.add_column(head, justify="left" if text else "right", overflow="fold", no_wrap=not text)
    for cells in rows:
        table.add_row(*cells)
    return table


def _parts(table: Table, console: Console) -> Iterator[Table]:
    """Yield as few tables as show all columns, each with the first one."""

    def width(part: Table) -> int:
        return Measurement.get(console, console.options.update(max_width=_UNLIMITED_WIDTH), part).maximum

    start, count = 1, len(table.columns)
    if width(table) <= console.width or count <= 2:
        yield table
        return
    while start < count:
        end = count
        while end > start + 1 and width(_columns(table, start, end)) > console.width:
            end -= 1
        yield _columns(table, start, end)
        start = end


def _columns(table: Table, start: int, end: int) -> Table:
    part, chosen = copy(table), [table.columns[0], *table.columns[start:end]]
    part.columns = [replace(column, _index=number) for number, column in enumerate(chosen)]
    return part


def progress_bar(*columns: ProgressColumn, expand: bool = False, transient: bool = False) -> Progress:
    """Return a bar that shows itself in a ``with`` block, if standard error is a terminal, not elsewhere."""
    return Progress(
        *columns,
        console=Console(stderr=True),
        expand=expand,
        transient=transient,
        # Not the console's own opinion: FORCE_COLOR asks for colours, not for a moving cursor in a file.
        disable=not sys.stderr.isatty(),
    )


def checked_output(path: Path | None) -> Path | None:
    """Refuse a folder that does not exist now, rather than after the work is done."""
    if path is not None and not is_stdout(path) and not path.parent.is_dir():
        raise typer.BadParameter(f"there is no folder {path.parent}")
    return path


JsonFile = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        rich_help_panel="Output",
        help='Write every figure as JSON to this file. "-" is standard output, which then gets nothing else.',
        callback=checked_output,
        dir_okay=False,
        writable=True,
        allow_dash=True,
    ),
]


def is_stdout(path: Path | None) -> bool:
    return path is not None and str(path) == "-"


def write_json(facts: dict[str, Any], path: Path | None) -> bool:
    """Write figures to where they are asked for; return whether standard output is left for people."""
    if path is None:
        return True
    if is_stdout(path):
        print(json.dumps(facts, indent=2, allow_nan=False))
        return False
    output_files.write_json(path, facts)
    return True


@contextmanager
def progress_of(total: float, *columns: ProgressColumn) -> Iterator[Callable[[float, str], None]]:
    """Show a bar on standard error if that is a terminal; yield what moves it to the step that begins."""
    shown = SpinnerColumn(), BarColumn(bar_width=20), *(columns or (MofNCompleteColumn(),))
    with progress_bar(*shown, TextColumn("{task.description}"), transient=True) as progress:
        task = progress.add_task("set-up", total=total)
        yield lambda done, text: progress.update(task, completed=done, description=text)


@contextmanager
def audit_progress(budget_minutes: float) -> Iterator[Callable[[str, int], None]]:
    """Show one bar for the whole budget.

    Yields a function that takes method and number of each federation as it begins.
    """
    began, of_all = time.monotonic(), TextColumn(f"of {budget_minutes:g} min")
    with progress_of(60 * budget_minutes, TimeElapsedColumn(), of_all) as show:
        yield lambda method, trial: show(time.monotonic() - began, f"{method}, trial {trial + 1}")
