"""How well scores tell members from others: the curve's area, its points at few false positives, and the advantage."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, norm, rankdata
from sklearn.metrics import roc_curve

from shieldfl.errors import ParameterError

__all__ = ["MembershipFigures", "Rate", "membership_figures"]


@dataclass(frozen=True)
class Rate:
    """A figure in [0, 1] with an interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class MembershipFigures:
    """What a membership attack achieved on samples of which it is known whether they were members.

    Intervals take samples as independent; samples that one target scored are nearly so, the same samples scored by
    several targets less.
    """

    members: int
    others: int
    area: Rate
    """Under the curve of true over false positives: 0.5 is chance. Interval by DeLong's variance (1988)."""
    true_positives_at: dict[float, Rate]
    """At a share of false positives, which is what chance achieves: interval by Clopper and Pearson, at the threshold
    as it was found. Shares for which there are too few others to find one are left out."""
    advantage: Rate
    """The largest difference of the two shares: 0 is chance, but what is found is a maximum, above 0 by chance too. The
    interval, by Dvoretzky, Kiefer, Wolfowitz and Massart, holds for all thresholds at once."""


def membership_figures(
    scores: NDArray[np.float64],
    members: NDArray[np.bool_],
    false_positives: tuple[float, ...] = (0.01, 0.001),
    confidence: float = 0.95,
) -> MembershipFigures:
    """Measure scores (n,), higher for likelier members, beside the truth (n,).

    Raises ParameterError for arrays that do not fit, scores that are not finite, or without 2 members and 2 others.
    """
    if scores.ndim != 1 or scores.shape != members.shape or not np.isfinite(scores).all():
        raise ParameterError("give one finite score, and one flag, for each sample")
    inside, outside = int(members.sum()), int((~members).sum())
    if inside < 2 or outside < 2:
        raise ParameterError(f"give 2 members and 2 others or more, got {inside} and {outside}")
    false_rates, true_rates, _ = roc_curve(members, scores, drop_intermediate=False)
    at = {
        share: _share(round(float(true_rates[false_rates <= share].max()) * inside), inside, confidence)
        for share in false_positives
        if share * outside >= 1
    }
    difference = float((true_rates - false_rates).max())
    off = sum(math.sqrt(math.log(4 / (1 - confidence)) / (2 * count)) for count in (inside, outside))
    advantage = Rate(difference, max(0.0, difference - off), min(1.0, difference + off))
    return MembershipFigures(inside, outside, _area(scores, members, confidence), at, advantage)


def _share(count: int, total: int, confidence: float) -> Rate:
    interval = binomtest(count, total).proportion_ci(confidence, method="exact")
    return Rate(count / total, float(interval.low), float(interval.high))


def _area(scores: NDArray[np.float64], members: NDArray[np.bool_], confidence: float) -> Rate:
    """Return Mann and Whitney's statistic; its variance is that of each sample's share of the other kind it beats."""
    ranks = rankdata(scores)
    inside, outside = scores[members], scores[~members]
    beaten = (ranks[members] - rankdata(inside)) / len(outside)
    beating = 1 - (ranks[~members] - rankdata(outside)) / len(inside)
    area = float(beaten.mean())
    deviation = math.sqrt(beaten.var(ddof=1) / len(inside) + beating.var(ddof=1) / len(outside))
    off = float(norm.ppf((1 + confidence) / 2)) * deviation
    return Rate(area, max(0.0, area - off), min(1.0, area + off))
