"""The pages of docs/papers, made of the tables' files and what is stored of them: nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from papers.code_state import ROOT
from papers.rules import Column, Paper, sentence
from papers.stored import Stored
from papers.table_file import PAPERS, PaperTable
from papers.verdicts import Cell, Counts, cells_of
from shieldfl.quantities import bytes_text, seconds_text, share_text

__all__ = ["FOLDER", "Measured", "pages", "write_pages"]

FOLDER = ROOT / "docs" / "papers"
Measured = Sequence[tuple[PaperTable, Stored | None]]
"""Tables, and what is stored of each."""
_WRITTEN_BY = "`make papers` measures these tables and writes this page from what it stored (`bench/papers`)."


def pages(measured: Measured) -> dict[str, str]:
    """Return the pages by file name: one for each paper, and the index."""
    by_paper = {name: [one for one in measured if one[0].paper == name] for name in PAPERS}
    written = {f"{name}.md": _paper_page(name, own) for name, own in by_paper.items()}
    return written | {"README.md": _index(by_paper)}


def write_pages(measured: Measured, folder: Path = FOLDER) -> list[Path]:
    """Write the pages, and return them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(measured).items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in pages(measured)]


def _count(measured: Measured) -> Counts:
    counts = Counts()
    for table, stored in measured:
        counts.add(table, cells_of(table, stored))
    return counts


def _index(by_paper: Mapping[str, Measured]) -> str:
    rows = []
    every = _count([one for own in by_paper.values() for one in own])
    for name, counts in [*((name, _count(own)) for name, own in by_paper.items()), ("", every)]:
        title = f"[{PAPERS[name]}]({name}.md)" if name else "all"
        numbers = (
            counts.tables,
            counts.tables_run,
            counts.tables_without_cells,
            counts.cells,
            counts.run,
            counts.agreeing,
            counts.disagreeing,
            counts.unjudged,
            counts.cells - counts.run,
        )
        rows.append((title, *map(str, numbers)))
    heads = ("paper", "tables", "run", "printed without numbers")
    heads += ("cells", "run", "agree", "disagree", "held against nothing", "not run")
    reasons = sorted(every.reasons.items(), key=lambda one: -one[1])
    return (
        "# The papers' tables, ours beside theirs\n\n"
        f"{_WRITTEN_BY}\n\n"
        "A table is a file that states the paper's numbers, our settings, every difference of setting that is known, "
        "and for each column when a cell of ours agrees. Results are kept under the file's digest: another rule, or "
        "another setting, throws them away. A cell is a number that the paper prints. Only the data set that the paper "
        "names counts, and all of it: where it is not at hand, or of a subset, the cell is not run.\n\n"
        "Rules and settings were written before the table was measured, with these exceptions. "
        "SelectiveShield's tables 4 and 5 and SenseCrypt's figure 6 follow an attack whose figures [were "
        "known](../audit-papers.md) for all but table 5. Of SenseCrypt's table 2 the seconds were at first to"
        " be below the paper's, which says nothing, and are held to its order since; the bytes under CKKS "
        "were at first to be of the paper's order, and are held to the same side of Paillier's since. "
        "Of Alt-FL's table II it "
        "was at first the other end of the column that was taken for the one a setting comes from; the bound "
        "did not change. The definition of distance in SenseCrypt's figure 10 was taken because it gives the "
        "paper's numbers.\n\n"
        f"{_table(heads, rows)}\n"
        "“Held against nothing” are cells that were measured and judge nothing: rows that others are compared with, "
        "those whose own number a setting was taken from, and those of another model than the paper's. Figures that "
        "papers print as pictures alone have no cells.\n\n"
        "Not run, and why:\n\n"
        f"{_table(('cells', 'why'), [(str(count), reason) for reason, count in reasons])}\n"
        "## Measuring them again\n\n"
        "```sh\n"
        "SHIELDFL_DATA=DIR make papers                       # all that the data at hand allow: 8 hours by estimate\n"
        "python bench/papers/run.py --list                   # tables, how long they take, what is stored\n"
        "python bench/papers/run.py --small                  # the quickest ones, a quarter of an hour in all\n"
        "python bench/papers/run.py --only alt-fl-table-2    # one table\n"
        "python bench/papers/run.py --pages                  # these pages from what is stored\n"
        "```\n\n"
        "Rows that are stored under the same file and the same code are not measured again, so that a run that was cut "
        "off goes on. The attack tables of these papers have [a page of their own](../audit-papers.md).\n"
    )


def _paper_page(name: str, measured: Measured) -> str:
    counts = _count(measured)
    text = (
        f"# {PAPERS[name]}: its tables, ours beside them\n\n{_WRITTEN_BY} [All papers](README.md).\n\n"
        f"{counts.tables} tables and figures, {counts.tables_run} of them run; {counts.cells} cells, {counts.run} of "
        f"them run: {counts.agreeing} agree, {counts.disagreeing} do not, {counts.unjudged} are held against nothing.\n"
    )
    return text + "".join(f"\n{_section(table, stored)}" for table, stored in measured)


def _section(table: PaperTable, stored: Stored | None) -> str:
    cells = cells_of(table, stored)
    ran = [cell for cell in cells if cell.ours is not None]
    parts = [f"## {table.table}: {table.title}\n"]
    if not cells:
        parts.append(f"{_sentence(table.not_run)}\n")
        return "\n".join(parts)
    agreeing, judged = sum(cell.agrees is True for cell in ran), sum(cell.agrees is not None for cell in ran)
    said = f"{len(ran)} of {len(cells)} cells run; {agreeing} of {judged} agree."
    if stored is not None and ran:
        where = f"{stored.environment.get('processor', 'unknown processor')}, one process"
        said += f" Commit `{stored.commit}`, {where}: `python bench/papers/run.py --only {table.name}`."
    parts.append(f"{said}\n")
    if ran:
        parts.append(
            "".join(f"- **{column.name}** agrees: {sentence(column)}.\n" for column in table.columns)
        )
    if table.differences:
        parts.append("Differences:\n\n" + "".join(f"- {one}\n" for one in table.differences))
    parts.append(_cells_table(table, cells) if ran else "")
    missing: dict[str, list[str]] = {}
    for cell in cells:
        if cell.ours is None:
            missing.setdefault(cell.reason, []).append(cell.row.name)
    for reason, rows in missing.items():
        names = list(dict.fromkeys(rows))
        whose = f"{len(rows)} cells of {len(names)} rows" if len(names) > 4 else "; ".join(names)
        parts.append(f"Not run ({whose}): {reason}.\n")
    return "\n".join(part for part in parts if part)


def _cells_table(table: PaperTable, cells: list[Cell]) -> str:
    found = {(cell.row.name, cell.column.name): cell for cell in cells}
    measured = {cell.row.name for cell in cells if cell.ours is not None}
    heads = ["", *(head for column in table.columns for head in (f"{column.name}: paper", "ours", ""))]
    rows = []
    for row in table.rows:
        if row.name in measured:
            line = [row.name]
            for column in table.columns:
                cell = found.get((row.name, column.name))
                line += ["", "", ""] if cell is None else _texts(cell)
            rows.append(line)
    return _table(heads, rows)


def _texts(cell: Cell) -> list[str]:
    said = {True: "agrees", False: "**no**", None: "–"}[cell.agrees if cell.ours is not None else None]
    ours = "" if cell.ours is None else _number(cell.column, cell.ours)
    return [_paper_number(cell.column, cell.paper), ours, said]


def _paper_number(column: Column, paper: Paper) -> str:
    ends = paper if isinstance(paper, tuple) else (paper,)
    return " to ".join(_number(column, one) for one in ends)


def _number(column: Column, value: float) -> str:
    if not math.isfinite(value):
        return "∞" if value > 0 else "none"
    texts = {"%": share_text, "s": seconds_text, "B": bytes_text}
    return texts[column.unit](value) if column.unit else f"{value:.4g}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith(".") else ".")
