"""The pages of docs/explanation/papers: the words of ``texts`` around tables of what is stored.

A text begins with the commit whose results it speaks of. ``=== frame`` is the page, ``=== NAME`` what stands around a
table.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from papers.claims import Claim, load_claims
from papers.code_state import ROOT
from papers.rules import Column, Paper, sentence
from papers.stored import Stored
from papers.table_file import PAPERS, PaperTable
from papers.verdicts import Cell, Counts, cells_of
from shieldfl.quantities import bytes_text, seconds_text, share_text

__all__ = ["FOLDER", "Measured", "pages", "words_of", "write_pages"]

FOLDER = ROOT / "docs" / "explanation" / "papers"
Measured = Sequence[tuple[PaperTable, Stored | None]]
"""Tables, and what is stored of each."""
Judged = tuple[Claim, str, str]
"""A claim, what ours is, and the verdict."""


def pages(measured: Measured) -> dict[str, str]:
    """Return the pages by file name: one for each paper, and the index."""
    by_paper = {name: [one for one in measured if one[0].paper == name] for name in PAPERS}
    cells = {table.name: cells_of(table, stored) for table, stored in measured}
    judged = [(claim, *claim.judged(lambda name: cells.get(name, []))) for claim in load_claims()]
    written = {
        f"{name}.md": _paper_page(name, own, [one for one in judged if one[0].paper == name])
        for name, own in by_paper.items()
    }
    return written | {"README.md": _index(by_paper, judged)}


def write_pages(measured: Measured, folder: Path = FOLDER) -> list[Path]:
    """Write the pages, and return them."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(measured).items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in pages(measured)]


def words_of(page: str) -> dict[str, str]:
    """Return a page's frame, and what stands around tables, by name; by "" the commit that they speak of."""
    written = (Path(__file__).parent / "texts" / f"{page}.md").read_text(encoding="utf-8")
    parts = re.split(r"^=== (\S+)\n", written, flags=re.MULTILINE)
    return dict(zip(["", *parts[1::2]], parts[::2], strict=True))


def _count(measured: Measured) -> Counts:
    counts = Counts()
    for table, stored in measured:
        counts.add(table, cells_of(table, stored))
    return counts


def _claims_list(judged: Sequence[Judged]) -> str:
    lines = []
    for claim, ours, verdict in judged:
        known = f" Known before the rule: {claim.known}." if claim.known else ""
        lines.append(
            f"- **{claim.claim}** ({claim.where}). Ours: {ours}. **{verdict[0].upper()}{verdict[1:]}.** Rule: "
            f"{claim.rule}{known} `{claim.command}`\n"
        )
    return "".join(lines).strip()


def _index(by_paper: Mapping[str, Measured], judged: Sequence[Judged]) -> str:
    rows = []
    every = _count([one for own in by_paper.values() for one in own])
    for name, counts in [*((name, _count(own)) for name, own in by_paper.items()), ("", every)]:
        title = f"[{PAPERS[name]}]({name}.md)" if name else "all"
        numbers = (
            counts.tables,
            counts.tables_run,
            counts.tables_without_cells,
            counts.cells,
            counts.agreeing,
            counts.disagreeing,
            counts.unjudged,
            counts.cells - counts.run,
        )
        rows.append((title, *map(str, numbers)))
    heads = ("paper", "tables", "tables measured", "tables without numbers")
    heads += ("cells", "agree", "disagree", "unjudged", "not measured")
    reasons = ", ".join(f"{reason} {count}" for reason, count in every.reasons.most_common())
    claims = [
        (PAPERS[claim.paper], claim.claim, claim.where, ours, verdict, f"`{claim.command}`")
        for claim, ours, verdict in judged
    ]
    return words_of("README")["frame"].format(
        claims=_table(("paper", "claim", "where", "ours", "verdict", "command"), claims),
        papers=_table(heads, rows),
        reasons=reasons,
    )


def _paper_page(name: str, measured: Measured, judged: Sequence[Judged]) -> str:
    counts, words = _count(measured), words_of(name)
    said = (
        f"{counts.cells} cells of {counts.tables} tables: {counts.agreeing} agree, {counts.disagreeing} disagree "
        f"(**bold**), {counts.unjudged} unjudged (*italic*), {counts.cells - counts.run} not measured."
    )
    sections: list[str] = []
    runs: dict[str, list[str]] = {}
    missing: dict[str, list[tuple[int, str]]] = {}
    for table, stored in measured:
        cells = cells_of(table, stored)
        title = f"{table.table}: {table.title}" if cells else table.table
        if stored is not None and any(cell.ours is not None for cell in cells):
            around = words.get(table.name, f"## {title}\n\n{{table}}\n")
            sections.append(around.strip().format(table=_section(table, cells)))
            machine = stored.environment.get("processor", "unknown processor")
            runs.setdefault(f"Commit `{stored.commit}`, {machine}, one process", []).append(table.name)
            title = table.table
        lacking = Counter(": ".join(cell.reason.split(": ")[:2]) for cell in cells if cell.ours is None)
        for reason, count in lacking.items() if cells else [(table.not_run, 0)]:
            missing.setdefault(reason, []).append((count, title))
            title = table.table
    said = " ".join(
        [said, *(f"{one}: `python bench/papers/run.py --only {' '.join(own)}`." for one, own in runs.items())]
    )
    rows = [
        (reason, str(sum(count for count, _ in own)), "; ".join(title for _, title in own))
        for reason, own in missing.items()
    ]
    reasons = _table(("why", "cells", "tables"), rows)
    claims = _claims_list(judged)
    return words["frame"].format(claims=claims, counts=said, tables="\n\n".join(sections), missing=reasons)


def _section(table: PaperTable, cells: Sequence[Cell]) -> str:
    """Return the rules, with the paper's number where a column has one alone, and the rows that were measured."""
    measured = {cell.row.name for cell in cells if cell.ours is not None}
    rules: dict[str, list[str]] = {}
    heads, lines = [table.row], {row.name: [row.name] for row in table.rows if row.name in measured}
    for column in table.columns:
        own = {cell.row.name: cell for cell in cells if cell.column is column and cell.row.name in measured}
        verdicts = [cell.agrees for cell in own.values() if cell.agrees is not None]
        papers = {_paper_number(column, cell.paper) for cell in own.values()}
        alone = len(papers) == 1 < len(verdicts)
        if verdicts:
            told = f"{sum(verdicts)} of {len(verdicts)}{f'; paper {papers.pop()}' if alone else ''}"
            rules.setdefault(sentence(column), []).append(f"**{column.name}** ({told})")
        name = f"{column.name}{', %' * (column.unit == '%')}"
        heads += [f"{name}: ours"] if alone else [f"{name}: paper", "ours"]
        for row, line in lines.items():
            cell = own.get(row)
            texts = ["", ""] if cell is None else [_paper_number(column, cell.paper), _ours(cell)]
            line.extend(texts[alone:])
    listed = "".join(f"- {', '.join(names)}: agree {rule}.\n" for rule, names in rules.items())
    return "\n".join(filter(None, (listed, _table(heads, list(lines.values()))))).strip()


def _ours(cell: Cell) -> str:
    if cell.ours is None:
        return ""
    mark = {True: "", False: "**", None: "*"}[cell.agrees]
    return f"{mark}{_number(cell.column, cell.ours)}{mark}"


def _paper_number(column: Column, paper: Paper) -> str:
    ends = paper if isinstance(paper, tuple) else (paper,)
    return " to ".join(_number(column, one) for one in ends)


def _number(column: Column, value: float) -> str:
    if not math.isfinite(value):
        return "∞" if value > 0 else "none"
    forms = {"%": share_text, "s": seconds_text, "B": bytes_text}
    return forms[column.unit](value).removesuffix(" %") if column.unit else f"{value:.4g}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head, *body = (f"| {' | '.join(line)} |\n" for line in (heads, *rows))
    return "".join([head, "|", "---|" * len(heads), "\n", *body])
