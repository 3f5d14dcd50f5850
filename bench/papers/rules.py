"""When a cell agrees with the paper's: each column's rule stands in its file.

- ``within``: no further from the paper's than ``bound``.
- ``factor``: at most ``bound`` times more, or less, than the paper's, which may be off by half of ``resolution``, its
  last digit.
- ``between``: inside the range that the paper states, such as "up to 250 MB".
- ``order``: wherever one of the paper's numbers in a group is below another one, so is ours, strictly. A group agrees
  as a whole or not at all.
- ``sign``: above, or below, the row that it is held ``against``, as the paper's is; no further apart than ``bound``
  where the paper's are equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.settings import refuse_unknown

__all__ = ["RULES", "Column", "Paper", "judge", "sentence"]

Paper = float | tuple[float, float]

RULES = ("within", "factor", "between", "order", "sign")
_KEYS = ("name", "figure", "rule", "bound", "against", "resolution", "unit")
_UNITS = ("", "%", "s", "B")


@dataclass(frozen=True)
class Column:
    """One figure of every row, and when it agrees."""

    name: str
    figure: str
    rule: str
    bound: float = 0.0
    against: str = ""
    resolution: float = 0.0
    unit: str = ""
    """How numbers are written: as they are, as a share of one, in seconds or in bytes."""

    @classmethod
    def read(cls, entry: Mapping[str, Any], where: str) -> Column:
        """Make a column of a file's table. Raises ParameterError that begins with ``where``."""
        refuse_unknown(entry, _KEYS, where)
        for key in ("name", "figure", "rule"):
            if key not in entry:
                raise ParameterError(f"{where} lacks {key}")
        column = cls(**entry)
        if column.rule not in RULES:
            raise ParameterError(f"{where}: unknown rule {column.rule!r}: choose one of {', '.join(RULES)}")
        if column.unit not in _UNITS:
            raise ParameterError(f"{where}: unknown unit {column.unit!r}")
        needs = {"within": 0.0, "factor": 1.0}.get(column.rule)
        if needs is not None and not column.bound > needs:
            raise ParameterError(f"{where}: the rule {column.rule} needs a bound above {needs:g}")
        if (column.rule == "sign") != bool(column.against):
            raise ParameterError(f"{where}: the rule sign, and no other one, needs a row that it is against")
        return column


def sentence(column: Column) -> str:
    """Say the rule."""
    said = {
        "within": f"within {column.bound:g}",
        "factor": f"within a factor of {column.bound:g}",
        "between": "inside the paper's range",
        "order": "where its group has the paper's strict order",
        "sign": f"on the paper's side of “{column.against}”",
    }[column.rule]
    return f"{said}, allowing half of the last digit" if column.resolution else said


def judge(column: Column, cells: Iterable[tuple[str, str, Paper, float | None]]) -> dict[str, bool | None]:
    """Return by row whether it agrees: None where it was not measured, or has nothing to be held against.

    ``cells`` are the column's: name of the row, its group, the paper's number and ours. A number that is not finite
    agrees with none.
    """
    given = list(cells)
    found: dict[str, bool | None] = dict.fromkeys((name for name, *_ in given), None)
    found |= {name: False for name, _, _, ours in given if ours is not None and not math.isfinite(ours)}
    measured = [
        (name, group, paper, ours)
        for name, group, paper, ours in given
        if ours is not None and math.isfinite(ours)
    ]
    if column.rule == "order":
        for group in {group for _, group, _, _ in measured}:
            own = [(name, _number(paper), ours) for name, one, paper, ours in measured if one == group]
            pairs = [(a, b) for a, b in permutations(own, 2) if a[1] < b[1]]
            if pairs:
                found |= dict.fromkeys((name for name, _, _ in own), all(a[2] < b[2] for a, b in pairs))
        return found
    base = next(((paper, ours) for name, _, paper, ours in measured if name == column.against), None)
    for name, _, paper, ours in measured:
        if column.rule == "sign":
            if base is not None and name != column.against:
                found[name] = _same_side(column.bound, _number(paper) - _number(base[0]), ours - base[1])
        else:
            found[name] = _agrees(column, paper, ours)
    return found


def _same_side(bound: float, paper: float, ours: float) -> bool:
    return abs(ours) <= bound if paper == 0.0 else ours * paper > 0.0


def _agrees(column: Column, paper: Paper, ours: float) -> bool:
    if column.rule == "between":
        assert isinstance(paper, tuple), "a file is refused where it is none"
        return paper[0] <= ours <= paper[1]
    stated = _number(paper)
    if column.rule == "within":
        return abs(ours - stated) <= column.bound * (1 + 1e-9)
    off = column.resolution / 2
    return max(0.0, stated - off) / column.bound <= ours <= (stated + off) * column.bound


def _number(paper: Paper) -> float:
    assert not isinstance(paper, tuple), "a file is refused where it is a range"
    return paper
