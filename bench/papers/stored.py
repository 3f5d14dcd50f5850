"""What was measured of a table, kept as JSON beside it: each row as soon as it is there."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from papers.code_state import code_digest, commit
from papers.table_file import PaperTable, Row
from shieldfl.errors import DataError
from shieldfl.lab.report.output_files import write_whole
from shieldfl.lab.simulation.runner import describe_environment

__all__ = ["RESULTS", "Stored", "StoredRow"]

RESULTS = Path(__file__).parent / "results"
_OF_ENVIRONMENT = ("version", "processor", "python", "torch")


@dataclass(frozen=True)
class StoredRow:
    """One row that was tried."""

    figures: dict[str, float]
    """By name; none where it could not be measured."""
    seconds: float
    """On the clock, also where other programs had the machine, or the process was stopped."""
    error: str = ""
    """Why it could not."""


@dataclass
class Stored:
    """What a table's rows measured, under one file and one state of the code."""

    file: str
    """Digest of the table's file: rules and settings."""
    code: str | None
    """Digest of the code that measured."""
    commit: str
    environment: dict[str, Any]
    rows: dict[str, StoredRow] = field(default_factory=dict)
    """By name."""

    @classmethod
    def new(cls, table: PaperTable) -> Stored:
        """Return nothing measured yet, by the code as it is."""
        environment = describe_environment()
        kept = {name: environment[name] for name in _OF_ENVIRONMENT if name in environment}
        return cls(table.digest, _code_of(table), commit(), kept)

    @classmethod
    def load(cls, table: PaperTable, folder: Path = RESULTS) -> Stored | None:
        """Return what is kept of the table's file as it is now; None where nothing is. Raises DataError."""
        path = folder / f"{table.name}.json"
        if not path.exists():
            return None
        try:
            known = json.loads(path.read_text(encoding="utf-8"))
            rows = {name: StoredRow(**row) for name, row in known.pop("rows").items()}
            stored = cls(**known, rows=rows)
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DataError(f"{path} cannot be read: remove it, and measure again ({error})") from error
        for row in rows.values():
            row.figures.update({name: math.nan for name, value in row.figures.items() if value is None})
            row.figures.update({name: float(value) for name, value in row.figures.items()})
        return stored if stored.file == table.digest else None

    def is_current(self, table: PaperTable) -> bool:
        """Say whether the code that measured is the code as it is."""
        return self.code is not None and self.code == _code_of(table)

    def figure(self, row: Row, name: str) -> float | None:
        """Return a figure of a row; None where it was not measured."""
        found = self.rows.get(row.name)
        return None if found is None else found.figures.get(name)

    def keep(self, table: PaperTable, folder: Path = RESULTS) -> None:
        """Write it down, rows in the table's order."""
        ordered = {row.name: asdict(self.rows[row.name]) for row in table.rows if row.name in self.rows}
        for row in ordered.values():
            row["figures"] = {name: _plain(value) for name, value in row["figures"].items()}
        folder.mkdir(parents=True, exist_ok=True)
        document = asdict(self) | {"rows": ordered}
        write_whole(folder / f"{table.name}.json", json.dumps(document, indent=1, allow_nan=False) + "\n")


def _code_of(table: PaperTable) -> str | None:
    return None if table.kind is None else code_digest(*table.kind.sources)


def _plain(value: float) -> float | str | None:
    if math.isnan(value):
        return None
    return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
