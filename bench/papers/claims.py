"""The papers' headline claims: when each counts as reproduced, and whether it is.

A claim that names ``cells`` is reproduced if three quarters of them agree, and not measured if one is not judged. The
others have ``ours`` and ``verdict`` by hand, from what ``command`` measures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from papers.table_file import PAPERS
from papers.verdicts import Cell
from shieldfl.errors import ParameterError
from shieldfl.settings import parse_toml, read_text, refuse_unknown

__all__ = ["CLAIMS", "VERDICTS", "Claim", "load_claims"]

CLAIMS = Path(__file__).parent / "claims.toml"
VERDICTS = ("reproduced", "not reproduced", "not measured")
"""What a verdict begins with; after a colon may stand why, or in which setting."""
_NEEDED = ("paper", "claim", "where", "rule", "command")
_BY_HAND = ("ours", "verdict")


@dataclass(frozen=True)
class Claim:
    """What a paper claims, and what became of it."""

    paper: str
    claim: str
    where: str
    rule: str
    """When it counts as reproduced."""
    command: str
    """What measures it."""
    known: str = ""
    """What was known when the rule was written."""
    cells: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns by table whose cells decide."""
    ours: str = ""
    verdict: str = ""

    def judged(self, cells_of_table: Callable[[str], list[Cell]]) -> tuple[str, str]:
        """Return what ours is, and the verdict."""
        if not self.cells:
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
        _claim(entry, f"{path.name}: claim {number}") for number, entry in enumerate(document["claims"], 1)
    ]


def _claim(entry: Mapping[str, object], where: str) -> Claim:
    refuse_unknown(entry, (*_NEEDED, "known", "cells", *_BY_HAND), where)
    for key in (*_NEEDED, *(() if "cells" in entry else _BY_HAND)):
        if not entry.get(key):
            raise ParameterError(f"{where} lacks {key}")
    if entry["paper"] not in PAPERS:
        raise ParameterError(f"{where}: unknown paper {entry['paper']!r}")
    claim = Claim(**entry)  # type: ignore[arg-type]
    if not claim.cells and claim.verdict.partition(":")[0] not in VERDICTS:
        raise ParameterError(f"{where}: a verdict begins with one of {', '.join(VERDICTS)}")
    return claim
