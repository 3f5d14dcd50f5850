"""SenseCrypt's selection once more, slowly: what the core's is tested against.

Scores are sorted, sums are fractions, and the mutual information is counted anew for every number of positions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple


class Chosen(NamedTuple):
    """The chosen positions and, in the order of ``shieldfl.masks.Selection``, what led to their number."""

    positions: list[int]
    best_count: int
    security_count: int
    information_count: int
    budget_count: int
    share: float
    information_bits: float


def ranking(scores: Sequence[float]) -> list[int]:
    """Return all positions in falling order of their scores, equal ones in rising order of position."""
    return sorted(range(len(scores)), key=lambda position: (-scores[position], position))


def bins_of(weights: Sequence[float], bins: int) -> tuple[list[int], int]:
    """Return the bin of every weight, and that of 0: equal widths over the range of the weights and 0."""
    lowest, highest = min(0.0, *weights), max(0.0, *weights)
    if lowest == highest:
        return [0] * len(weights), 0
    per_range = bins / (highest - lowest)

    def bin_of(weight: float) -> int:
        return min(int((weight - lowest) * per_range), bins - 1)

    return [bin_of(weight) for weight in weights], bin_of(0.0)


def information_bits(bins: Sequence[int], masked_bins: Sequence[int]) -> float:
    """Return the mutual information of two columns of bins in bits: eq. 3, term by term."""
    total = len(bins)
    joint, left, right = (
        Counter(zip(bins, masked_bins, strict=True)),
        Counter(bins),
        Counter(masked_bins),
    )
    return math.fsum(
        count / total * math.log2(count * total / (left[x] * right[y])) for (x, y), count in joint.items()
    )


def objective(scores: Sequence[float], positions: Sequence[int], cost: float, gain: float) -> Fraction:
    """Return what the scalarised problem minimises, times the number of positions and the sum of the scores."""
    chosen = sum(Fraction(scores[position]) for position in positions)
    whole = sum(map(Fraction, scores), Fraction(0))
    return Fraction(cost) * len(positions) * whole - Fraction(gain) * chosen * len(scores)


def select(
    scores: Sequence[float],
    weights: Sequence[float],
    *,
    budget: float,
    exposed_share: float,
    exposure_decay: float,
    information_limit_bits: float,
    bins: int,
    cost_weight: float,
    gain_weight: float,
) -> Chosen:
    """Choose the highest scores (eqs. 4 to 9): the best number of them, within what the limits allow."""
    size = len(scores)
    order = ranking(scores)
    sums = list(accumulate((Fraction(scores[position]) for position in order), initial=Fraction(0)))
    whole = sums[-1]
    cost = Fraction(cost_weight / gain_weight)
    best_count = sum(Fraction(score) * size > cost * whole for score in scores)
    required = Fraction(1.0 - exposed_share * math.exp(-exposure_decay * budget))
    security_count = next(count for count, part in enumerate(sums) if part >= required * whole)

    own_bins, zero_bin = bins_of(weights, bins)
    masked_bins = list(own_bins)
    left_bits = [information_bits(own_bins, masked_bins)]
    for position in order:
        masked_bins[position] = zero_bin
        left_bits.append(information_bits(own_bins, masked_bins))
    left_bits[-1] = 0.0  # every position says 0: the terms cancel but for rounding
    information_count = next(count for count, bits in enumerate(left_bits) if bits <= information_limit_bits)

    budget_count = max(count for count in range(size + 1) if count / size <= budget)
    count = min(budget_count, max(best_count, security_count, information_count))
    share = float(sums[count] / whole) if whole else 1.0
    return Chosen(
        sorted(order[:count]),
        best_count,
        security_count,
        information_count,
        budget_count,
        share,
        left_bits[count],
    )
