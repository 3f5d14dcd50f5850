"""A table or figure of a paper as a file: its numbers, our settings, and the rule of agreement.

``kind`` names the module of ``papers.kinds`` that measures it. ``[settings]`` is what all rows are measured with, a
row's ``with`` what it has beside that; a table in both is merged. Each ``[[columns]]`` names a figure of the kind and
the rule of :mod:`papers.rules`; each row has the paper's numbers by column in ``paper``: what it has no number of is
no cell. ``row`` says what rows are named by. ``differences`` and comments record what was known before the table was
measured; pages say it in ``texts``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from papers.kinds import Kind, kind_named
from papers.rules import Column
from shieldfl.errors import ParameterError
from shieldfl.settings import parse_toml, read_text, refuse_unknown

__all__ = ["PAPERS", "TABLES", "PaperTable", "Row", "load_table", "parse_table"]

TABLES = Path(__file__).parent / "tables"
PAPERS = {
    "selective-shield": "SelectiveShield",
    "sense-crypt": "SenseCrypt",
    "dict-pfl": "DictPFL",
    "alt-fl": "Alt-FL",
}
"""Names of papers, as pages are called, and their titles."""
WHY_NOT = ("data absent", "no numbers", "not built", "too long", "elsewhere", "no paper")
"""What the reasons for not measuring begin with."""
MOST_SECONDS = 3600.0
"""Of a table."""

_KEYS = (
    "paper",
    "table",
    "title",
    "row",
    "kind",
    "seconds",
    "data",
    "differences",
    "not_run",
    "unjudged",
    "settings",
    "columns",
    "rows",
)
_NEEDED = ("paper", "table", "title", "columns", "rows")
_OF_ROW = ("name", "with", "paper", "group", "data", "not_run", "long", "unjudged")


@dataclass(frozen=True)
class Row:
    """One line of a table."""

    name: str
    settings: Mapping[str, Any]
    """What it is measured with."""
    paper: Mapping[str, float | tuple[float, float]]
    """The paper's numbers by column; two are the ends of a range."""
    group: str = ""
    """An order is held within a group."""
    data: tuple[str, ...] = ()
    """Whole data sets that it takes."""
    not_run: str = ""
    """Why it cannot be measured; empty for a row that can."""
    long: bool = False
    """Whether it is left out of a table's hour: measured with ``--long`` alone."""
    unjudged: str = ""
    """Why its numbers, though measured, show neither agreement nor the contrary; empty where they do."""


@dataclass(frozen=True)
class PaperTable:
    """What a file says."""

    name: str
    """The file's."""
    paper: str
    table: str
    title: str
    row: str
    """What rows are named by; empty where their names say it."""
    kind: Kind | None
    """What measures it; None for a table that nothing here does."""
    seconds: float
    """How long it takes on one core, estimated; of all rows that are not long."""
    settings: Mapping[str, Any]
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    not_run: str
    """Why none of it can be measured; empty for a table that can, in part at least."""
    digest: str
    """Of the file's text."""

    @property
    def cells(self) -> list[tuple[Row, Column]]:
        """All places that the paper has a number for."""
        return [(row, column) for row in self.rows for column in self.columns if column.name in row.paper]


def load_table(path: Path) -> PaperTable:
    """Read a file. Raises ParameterError that names it, and DataError for one that cannot be read."""
    text = read_text(path, "table of a paper")
    try:
        return parse_table(text, path.stem)
    except ParameterError as error:
        raise ParameterError(f"{path.name}: {error}") from None


def parse_table(text: str, name: str) -> PaperTable:
    """Make a table of a file's text. Raises ParameterError for what is unknown, missing or out of range."""
    document = parse_toml(text, _KEYS, "the file")
    for key in _NEEDED:
        if key not in document:
            raise ParameterError(f"the file lacks {key}")
    if document["paper"] not in PAPERS:
        raise ParameterError(f"unknown paper {document['paper']!r}: choose one of {', '.join(PAPERS)}")
    kind = kind_named(document["kind"]) if "kind" in document else None
    not_run = document.get("not_run", "")
    if kind is None and not not_run:
        raise ParameterError("a table that no kind measures says in not_run why")
    seconds = float(document.get("seconds", 0.0))
    if not 0.0 <= seconds <= MOST_SECONDS:
        raise ParameterError(f"a table is to take an hour at most: seconds is {seconds:g}")
    columns = tuple(
        Column.read(entry, f"[[columns]] {number}") for number, entry in enumerate(document["columns"], 1)
    )
    settings = document.get("settings", {})
    rows = tuple(_row(entry, number, document, columns) for number, entry in enumerate(document["rows"], 1))
    _check_rows(not_run, columns, rows)
    if kind is not None:
        _check_kind(kind, columns, rows)
    return PaperTable(
        name,
        document["paper"],
        document["table"],
        document["title"],
        document.get("row", ""),
        kind,
        seconds,
        settings,
        columns,
        rows,
        not_run,
        sha256(text.encode()).hexdigest(),
    )


def _row(
    entry: Mapping[str, Any], number: int, document: Mapping[str, Any], columns: tuple[Column, ...]
) -> Row:
    where = f"row {number}"
    refuse_unknown(entry, _OF_ROW, where)
    for key in ("name", "paper"):
        if key not in entry:
            raise ParameterError(f"{where} lacks {key}")
    refuse_unknown(entry["paper"], [column.name for column in columns], f"{where}, paper,")
    return Row(
        entry["name"],
        _merged(document.get("settings", {}), entry.get("with", {})),
        {
            name: tuple(value) if isinstance(value, list) else float(value)
            for name, value in entry["paper"].items()
        },
        entry.get("group", ""),
        tuple(entry.get("data", document.get("data", ()))),
        entry.get("not_run", document.get("not_run", "")),
        entry.get("long", False),
        entry.get("unjudged", document.get("unjudged", "")),
    )


def _check_rows(not_run: str, columns: tuple[Column, ...], rows: tuple[Row, ...]) -> None:
    for reason in (not_run, *(row.not_run for row in rows)):
        if reason and reason.partition(":")[0] not in WHY_NOT:
            raise ParameterError(f"not_run begins with one of {', '.join(WHY_NOT)} and a colon: {reason!r}")
    names = [row.name for row in rows]
    if len(set(names)) < len(names):
        raise ParameterError("two rows have one name")
    for column in columns:
        if column.against and column.against not in names:
            raise ParameterError(
                f"column {column.name!r} is against the row {column.against!r}, which is not there"
            )
    for row in rows:
        for column in columns:
            if column.name in row.paper and isinstance(row.paper[column.name], tuple) != (
                column.rule == "between"
            ):
                raise ParameterError(
                    f"row {row.name!r}: the paper's {column.name!r} must be a range for the rule between, and "
                    "else a number"
                )


def _merged(common: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(common)
    for key, value in own.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _check_kind(kind: Kind, columns: tuple[Column, ...], rows: tuple[Row, ...]) -> None:
    for column in columns:
        if column.figure not in kind.figures:
            raise ParameterError(
                f"unknown figure {column.figure!r} of {kind.name}: choose one of {', '.join(kind.figures)}"
            )
    for row in rows:
        if not row.not_run:
            try:
                kind.check(row.settings)
            except ParameterError as error:
                raise ParameterError(f"row {row.name!r}: {error}") from None
