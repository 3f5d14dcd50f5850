"""Selection by eq. 9 as it is printed, without the bars of its normalisation."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shieldfl.selection import SelectionLimits, select

FREE = {"budget": 1.0, "exposed_share": 1.0, "exposure_decay": 1e-9, "information_bits": math.inf}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cost", [0.11, 1.0, 2.5])
@pytest.mark.parametrize(
    "scores", [np.linspace(0.0, 3.0, 12), np.full(12, 0.1), np.zeros(12), np.repeat([1.0, 4.0, 0.25], 4)]
)
def test_the_objective_without_bars_is_the_plain_difference(scores, cost, dtype):
    scores = np.random.default_rng(5).permutation(scores).astype(dtype)
    limits = SelectionLimits(**FREE, cost_weight=cost, gain_weight=1.5, normalised=False)
    chosen = select(scores, np.ones(12, dtype), limits)
    ranked = np.sort(scores.astype(np.float64))[::-1]
    objective = cost * np.arange(13) - 1.5 * np.concatenate([[0.0], np.cumsum(ranked)])
    assert objective[chosen.best_count] == pytest.approx(objective.min(), rel=1e-6, abs=1e-9)


def test_without_bars_small_scores_are_chosen_as_far_as_security_asks():
    rng = np.random.default_rng(8)
    scores, weights = rng.random(1000) * 1e-3, rng.normal(size=1000)
    common = {"budget": 0.9, "exposed_share": 0.9, "exposure_decay": 0.5, "information_bits": math.inf}
    printed = select(scores, weights, SelectionLimits(**common, normalised=False))
    barred = select(scores, weights, SelectionLimits(**common))
    assert printed.best_count == 0
    assert printed.count == printed.security_count < barred.count
