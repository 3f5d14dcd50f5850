"""How often intervals hold the truth, and what they are of few values."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shieldfl.audit.figures import bootstrap_interval
from shieldfl.errors import ParameterError


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


def test_an_impossible_confidence_is_refused():
    with pytest.raises(ParameterError, match="confidence"):
        bootstrap_interval([1.0, 2.0], "mean", seed=0, confidence=1.0)
