"""The papers' headline claims: when each counts as reproduced, and whether it is.

A claim that names ``cells`` is reproduced if three quarters of them agree, and not measured if one is not judged. The
others have ``ours`` and ``verdict`` by hand, from what ``command`` measures.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from papers.table_file import PAPERS
from papers.verdicts import Cell
from shieldfl.errors import ParameterError
from shieldfl.settings import Settings, Text, parse_toml, read_settings, read_text, tables_of

__all__ = ["VERDICTS", "Claim", "load_claims"]

CLAIMS = Path(__file__).parent / "claims.toml"
VERDICTS = ("reproduced", "not reproduced", "not measured")
"""What a verdict begins with; after a colon may stand why, or in which setting."""


@dataclass(frozen=True)
class Claim(Settings):
    """What a paper claims, and what became of it. Raises ParameterError without cells or a verdict."""

    paper: str
    claim: Text
    where: Text
    rule: Text
    """When it counts as reproduced."""
    command: Text
    """What measures it."""
    known: str = ""
    """What was known when the rule was written."""
    cells: dict[str, tuple[str, ...]] | None = None
    """Columns by table whose cells decide; None where ``ours`` and ``verdict`` are by hand."""
    ours: str = ""
    verdict: str = ""

    def __post_init__(self) -> None:
        if self.paper not in PAPERS:
            raise ParameterError(f"has the unknown paper {self.paper!r}: choose one of {', '.join(PAPERS)}")
        if self.cells is not None:
            return
        for name in ("ours", "verdict"):
            if not getattr(self, name):
                raise ParameterError(f"lacks {name}")
        if self.verdict.partition(":")[0] not in VERDICTS:
            raise ParameterError(f"has no verdict: a verdict begins with one of {', '.join(VERDICTS)}")

    def judged(self, cells_of_table: Callable[[str], list[Cell]]) -> tuple[str, str]:
        """Return what ours is, and the verdict."""
        if self.cells is None:
            return self.ours, self.verdict
        own = [
            cell
            for table, columns in self.cells.items()
            for cell in cells_of_table(table)
            if cell.column.name in columns
        ]
        verdicts = [cell.agrees for cell in own if cell.agrees is not None]
        if not own or len(verdicts) < len(own):
            return f"{len(verdicts)} of {len(own)} cells measured", "not measured"
        agreeing = sum(verdicts)
        said = f"{agreeing} of {len(verdicts)} cells agree"
        return said, VERDICTS[0] if 4 * agreeing >= 3 * len(verdicts) else VERDICTS[1]


def load_claims(path: Path = CLAIMS) -> list[Claim]:
    """Read the file. Raises ParameterError for what is unknown or missing."""
    document = parse_toml(read_text(path, "file of claims"), ("claims",), path.name)
    return [
        read_settings(Claim, entry, f"{path.name}: claim {number}")
        for number, entry in enumerate(tables_of(document, "claims"), 1)
    ]
