"""What became of each cell of a table: it agrees, it does not, or why it was not run."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from papers.rules import Column, Paper, judge
from papers.stored import Stored
from papers.table_file import PaperTable, Row

__all__ = ["Cell", "Counts", "cells_of", "reason_of"]

NOT_MEASURED = "not run yet: under the present file"
TOO_LONG = "too long: over the hour of a table; with --long"


@dataclass(frozen=True)
class Cell:
    """One number of the paper's, and ours."""

    row: Row
    column: Column
    paper: Paper
    ours: float | None
    """None where it was not measured."""
    agrees: bool | None
    """None where it was not measured, or has nothing to be held against, as the row that others are held against."""
    reason: str
    """Why it was not measured; empty where it was."""


@dataclass
class Counts:
    """How many tables and cells there are of one paper, and what became of them."""

    tables: int = 0
    tables_run: int = 0
    """With a cell that was measured."""
    cells: int = 0
    agreeing: int = 0
    disagreeing: int = 0
    unjudged: int = 0
    """Measured, and held against nothing."""
    reasons: Counter[str] = field(default_factory=Counter)
    """Cells that were not run, by why: what stands before the colon."""
    tables_without_cells: int = 0
    """Which the papers print without numbers."""

    @property
    def run(self) -> int:
        """Cells that were measured."""
        return self.agreeing + self.disagreeing + self.unjudged

    def add(self, table: PaperTable, cells: list[Cell]) -> None:
        """Count a table."""
        self.tables += 1
        self.cells += len(cells)
        self.tables_run += any(cell.ours is not None for cell in cells)
        self.tables_without_cells += not cells
        self.agreeing += sum(cell.agrees is True for cell in cells)
        self.disagreeing += sum(cell.agrees is False for cell in cells)
        self.unjudged += sum(cell.agrees is None and cell.ours is not None for cell in cells)
        self.reasons.update(cell.reason.partition(":")[0] for cell in cells if cell.ours is None)


def cells_of(table: PaperTable, stored: Stored | None) -> list[Cell]:
    """Return every cell of a table."""
    found = []
    for column in table.columns:
        own = [
            (row, row.paper[column.name], None if stored is None else stored.figure(row, column.figure))
            for row in table.rows
            if column.name in row.paper
        ]
        agrees = judge(column, [(row.name, row.group, paper, ours) for row, paper, ours in own])
        for row, paper, ours in own:
            held = None if row.unjudged else agrees[row.name]
            found.append(
                Cell(row, column, paper, ours, held, "" if ours is not None else reason_of(row, stored))
            )
    return found


def reason_of(row: Row, stored: Stored | None) -> str:
    """Say why a row has no figures."""
    tried = None if stored is None else stored.rows.get(row.name)
    if row.not_run:
        return row.not_run
    if tried is not None and tried.error:
        return tried.error
    return TOO_LONG if row.long else NOT_MEASURED
