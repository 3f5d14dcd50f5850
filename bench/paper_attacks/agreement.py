"""When a figure of ours agrees with a paper's: the rule is stated here, before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import permutations

from scipy.stats import binomtest

__all__ = [
    "NEAR_ZERO",
    "TOLERANCE",
    "TRIALS_TO_SHOW",
    "agreement",
    "least_bound",
    "most_bound",
    "shows_near_zero",
]

TOLERANCE = 0.1
"""A value within it of the paper's agrees: papers print one digit."""
NEAR_ZERO = 0.005
"""Alt-FL calls an attack defended against whose success rate is below this (section V)."""
TRIALS_TO_SHOW = 600
"""Trials without a success that it takes to show a rate below :data:`NEAR_ZERO` at 95 %, as three in 600."""


def agreement(paper: Sequence[float], ours: Sequence[float], tolerance: float = TOLERANCE) -> str:
    """Say how a column agrees: ``values``, ``order`` or ``no``.

    Values: each lies within the tolerance of the paper's. Order: wherever one of the paper's values is below another
    one, so is ours, strictly; a paper whose values are all the same has no order.
    """
    if all(abs(a - b) <= tolerance + 1e-9 for a, b in zip(paper, ours, strict=True)):
        return "values"
    ordered = [(i, j) for i, j in permutations(range(len(paper)), 2) if paper[i] < paper[j]]
    return "order" if ordered and all(ours[i] < ours[j] for i, j in ordered) else "no"


@cache
def most_bound(successes: int, tried: int) -> float:
    """Return the upper end of a one-sided 95 % interval of a rate (Clopper, Pearson); 1 where nothing was tried."""
    return float(binomtest(successes, tried).proportion_ci(0.9, "exact").high) if tried else 1.0


@cache
def least_bound(successes: int, tried: int) -> float:
    """Return the lower end of a one-sided 95 % interval of a rate; 0 where nothing was tried."""
    return float(binomtest(successes, tried).proportion_ci(0.9, "exact").low) if tried else 0.0


def shows_near_zero(successes: int, tried: int) -> bool:
    """Say whether the trials show a rate below 0.5 %: 600 of them at least, and the bound below it."""
    return tried >= TRIALS_TO_SHOW and most_bound(successes, tried) < NEAR_ZERO
