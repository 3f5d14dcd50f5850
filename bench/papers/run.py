"""Every published table that two cores can run: measured, kept, and written beside the papers'.

    SHIELDFL_DATA=DIR python bench/papers/run.py [--only NAME ...] [--small] [--long] [--list] [--pages]

Tables are the files of bench/papers/tables. What is measured is kept row by row in bench/papers/results, under the
digests of the file and of the code (git's trees of python/shieldfl and cpp as they lie there), and what is kept under
the same ones is not measured again. In the end the pages of docs/explanation/papers are written. Exit code 2 for a
file that asks for something unknown, which is named while the others run; 1 where a row could not be measured for
another reason than that its data are not there; 130 for Ctrl-C, after which the next run goes on.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch

from papers.pages import Measured, write_pages
from papers.stored import RESULTS, Stored, StoredRow
from papers.table_file import TABLES, PaperTable, Row, load_table
from papers.verdicts import cells_of
from shieldfl.errors import DataError, ParameterError, ShieldError
from shieldfl.lab.simulation import DATASETS
from shieldfl.lab.simulation.data import load_dataset
from shieldfl.quantities import seconds_text

SMALL_SECONDS = 900.0
"""Of the quickest tables together."""


def load_all(folder: Path) -> tuple[list[PaperTable], list[str]]:
    """Return the tables, quickest first, and what is wrong with files that are none."""
    tables, wrong = [], []
    for path in sorted(folder.glob("*.toml")):
        try:
            tables.append(load_table(path))
        except (ParameterError, DataError) as error:
            wrong.append(str(error))
    return sorted(tables, key=lambda table: (table.seconds, table.name)), wrong


@cache
def absent(name: str) -> str:
    """Say why a data set does not count as the paper's; empty for one that is there as a whole."""
    if name not in DATASETS:
        return f"data absent: {name}"
    try:
        dataset = load_dataset(name)
    except DataError:
        return f"data absent: {name}"
    return f"data absent: {name} as a whole" if "subset" in dataset.description else ""


def chosen(tables: Sequence[PaperTable], only: Sequence[str] | None, small: bool) -> list[PaperTable]:
    """Return which tables to measure. Raises ParameterError for a name that there is not."""
    names = [table.name for table in tables]
    for name in only or ():
        if name not in names:
            raise ParameterError(f"there is no table {name!r}: --list shows them")
    taken, seconds = [], 0.0
    for table in tables:
        if table.kind is None or (only and table.name not in only):
            continue
        seconds += table.seconds
        if not small or seconds <= SMALL_SECONDS:
            taken.append(table)
    return taken


def with_data(table: PaperTable) -> list[Row]:
    """Return the rows of a table's hour whose data are there."""
    return [row for row in table.rows if not (row.not_run or row.long or any(map(absent, row.data)))]


def seconds_of_row(table: PaperTable) -> float:
    """Return what one row of a table takes by its estimate."""
    return table.seconds / max(1, sum(not (row.not_run or row.long) for row in table.rows))


class Progress:
    """Says what is measured, for how long, and how long the rest may take."""

    def __init__(self, tables: Iterable[PaperTable]) -> None:
        self._left = sum(seconds_of_row(table) * len(with_data(table)) for table in tables)
        self._began = time.perf_counter()

    def table(self, table: PaperTable, rows: int) -> None:
        print(f"== {table.name}: {table.table}, {rows} rows, some {seconds_text(table.seconds)}", flush=True)

    def row(self, number: int, rows: int, name: str, stored: StoredRow) -> None:
        said = stored.error or seconds_text(stored.seconds)
        gone = seconds_text(time.perf_counter() - self._began)
        left = f", some {seconds_text(self._left)} left" if self._left else ""
        print(f"  {number}/{rows} {name}: {said}; {gone} gone{left}", flush=True)

    def spend(self, seconds: float) -> None:
        """Take what a row was estimated to take off what is left."""
        self._left = max(0.0, self._left - seconds)


def measure(table: PaperTable, progress: Progress, folder: Path, long: bool) -> bool:
    """Measure the rows of a table that are not kept; return whether each could be that has its data."""
    stored = Stored.load(table, folder)
    if stored is None or not stored.is_current(table):
        stored = Stored.new(table)
    rows = [
        row for row in table.rows if not row.not_run and (long or not row.long or any(map(absent, row.data)))
    ]
    progress.table(table, len(rows))
    fine = True
    for number, row in enumerate(rows, start=1):
        known = stored.rows.get(row.name)
        if known is None or known.error:
            stored.rows[row.name] = known = measured(table, row)
            stored.keep(table, folder)
        progress.row(number, len(rows), row.name, known)
        if not known.error and not row.long:
            progress.spend(seconds_of_row(table))
        fine &= not known.error or known.error.startswith("data absent")
    return fine


def measured(table: PaperTable, row: Row) -> StoredRow:
    """Measure one row, or say why that cannot be."""
    lacking = [reason for reason in map(absent, row.data) if reason]
    if lacking:
        return StoredRow({}, 0.0, lacking[0])
    assert table.kind is not None, "it was chosen"
    began = time.perf_counter()
    try:
        figures = table.kind.measure(row.settings)
    except ShieldError as error:
        return StoredRow({}, time.perf_counter() - began, f"failed: {error}")
    return StoredRow({name: float(one) for name, one in figures.items()}, time.perf_counter() - began)


def listed(tables: Iterable[PaperTable], folder: Path) -> None:
    """Print the tables and what is kept of each."""
    for table in tables:
        stored = Stored.load(table, folder)
        cells = cells_of(table, stored)
        run, agree = sum(cell.ours is not None for cell in cells), sum(cell.agrees is True for cell in cells)
        state = "" if stored is None or stored.is_current(table) else ", by other code"
        needs = ", ".join(sorted({name for row in table.rows for name in row.data})) or "no data"
        seconds = seconds_text(table.seconds) if table.kind is not None else "not run"
        print(
            f"{table.name:32} {seconds:>9}  {run}/{len(cells)} cells run, {agree} agree{state}; {table.table}; {needs}"
        )


def main(arguments: Sequence[str] | None = None, tables_in: Path = TABLES, results: Path = RESULTS) -> int:
    """Do what the command line asks for, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="tables by name")
    parser.add_argument("--small", action="store_true", help="the quickest, a quarter of an hour in all")
    parser.add_argument("--long", action="store_true", help="also rows beyond the hour of a table")
    parser.add_argument("--list", action="store_true", help="what there is, and what is kept of it")
    parser.add_argument("--pages", action="store_true", help="only write the pages, from what is kept")
    options = parser.parse_args(arguments)
    tables, wrong = load_all(tables_in)
    for text in wrong:
        print(text, file=sys.stderr)
    code = 2 if wrong else 0
    if options.list:
        listed(tables, results)
        return code
    if not options.pages:
        try:
            taken = chosen(tables, options.only, options.small)
        except ParameterError as error:
            print(error, file=sys.stderr)
            return 2
        torch.set_num_threads(1)
        progress = Progress(taken)
        try:
            fine = [measure(table, progress, results, options.long) for table in taken]
        except KeyboardInterrupt:
            print("stopped: the rows that were measured are kept, and the next run goes on", file=sys.stderr)
            return 130
        code = code or (0 if all(fine) else 1)
    if tables_in == TABLES and not wrong:
        write_pages(with_results(tables, results))
    return code


def with_results(tables: Iterable[PaperTable], folder: Path = RESULTS) -> Measured:
    """Return tables in the pages' order, and what is kept of each."""
    return [(table, Stored.load(table, folder)) for table in in_order(tables)]


def in_order(tables: Iterable[PaperTable]) -> list[PaperTable]:
    """Return tables as pages have them: tables before figures, by number."""

    def key(table: PaperTable) -> tuple[str, bool, int, str]:
        digits = "".join(one if one.isdigit() else " " for one in table.name.replace(table.paper, "")).split()
        return table.paper, "figure" in table.name, int(digits[0]) if digits else 0, table.name

    return sorted(tables, key=key)


if __name__ == "__main__":
    sys.exit(main())
