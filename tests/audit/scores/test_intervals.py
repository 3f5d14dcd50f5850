"""Intervals against their formulas, and how often they hold the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shieldfl.audit.scores.intervals import bootstrap_interval, wilson_interval
from shieldfl.errors import ParameterError


@pytest.mark.parametrize(("successes", "tried"), [(0, 200), (3, 200), (100, 200), (200, 200)])
def test_wilson_is_its_formula(successes, tried):
    z = 1.959963984540054
    share = successes / tried
    middle = (share + z**2 / (2 * tried)) / (1 + z**2 / tried)
    half = z / (1 + z**2 / tried) * math.sqrt(share * (1 - share) / tried + z**2 / (4 * tried**2))
    found = wilson_interval(successes, tried)
    assert (found.low, found.high) == pytest.approx((middle - half, middle + half), abs=1e-12)


def test_bootstrap_holds_the_truth_about_as_often_as_it_says():
    held = {"mean": 0, "median": 0}
    for trial in range(20):
        values = np.random.default_rng(trial).normal(5.0, 2.0, 40)
        for statistic in ("mean", "median"):
            found = bootstrap_interval(values.tolist(), statistic, seed=trial)
            assert found.low < found.high
            held[statistic] += found.low <= 5.0 <= found.high
    assert all(count >= 16 for count in held.values())


def test_few_and_equal_values():
    assert bootstrap_interval([3.0] * 5, "median", seed=0).low == 3.0
    assert bootstrap_interval([3.0], "mean", seed=0).high == math.inf
    with pytest.raises(ParameterError, match="no values"):
        bootstrap_interval([], "mean", seed=0)


def test_impossible_numbers_are_refused():
    for successes, tried in ((0, 0), (3, 2), (-1, 2)):
        with pytest.raises(ParameterError, match="share"):
            wilson_interval(successes, tried)
    with pytest.raises(ParameterError, match="confidence"):
        wilson_interval(1, 2, confidence=1.0)
