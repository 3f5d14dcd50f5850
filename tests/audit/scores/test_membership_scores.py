"""Figures of membership beside scikit-learn's and beside scores whose curve is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.metrics import roc_auc_score

from shieldfl.audit.attacks.membership import membership_figures
from shieldfl.errors import ParameterError


def shifted(generator: np.random.Generator, by: float, count: int = 400) -> tuple[np.ndarray, np.ndarray]:
    members = np.arange(2 * count) < count
    return generator.normal(size=2 * count) + by * members, members


def test_intervals_cover_the_truth_as_often_as_they_say():
    """Of two Gaussians a deviation apart the area is Phi(1/sqrt 2) and the advantage 2 Phi(1/2) - 1."""
    generator = np.random.default_rng(0)
    area, advantage = norm.cdf(1 / np.sqrt(2)), 2 * norm.cdf(0.5) - 1
    figures = [membership_figures(*shifted(generator, 1.0)) for _ in range(200)]
    covered = sum(each.area.low <= area <= each.area.high for each in figures)
    assert 177 <= covered <= 199
    assert sum(each.advantage.low <= advantage <= each.advantage.high for each in figures) >= 190


def test_without_a_difference_everything_is_chance():
    generator = np.random.default_rng(1)
    figures = [membership_figures(*shifted(generator, 0.0)) for _ in range(50)]
    assert np.mean([each.area.value for each in figures]) == pytest.approx(0.5, abs=0.01)
    assert np.mean([each.true_positives_at[0.01].value for each in figures]) == pytest.approx(0.01, abs=0.005)
    assert all(each.advantage.low == 0.0 for each in figures)


def test_ties_count_half_and_false_positives_are_never_more_than_stated():
    generator = np.random.default_rng(2)
    scores, members = shifted(generator, 1.0)
    coarse = np.round(scores)
    figures = membership_figures(coarse, members)
    assert figures.area.value == pytest.approx(roc_auc_score(members, coarse))
    thresholds = [t for t in np.unique(coarse) if (coarse[~members] >= t).mean() <= 0.01]
    expected = max(((coarse[members] >= t).mean() for t in thresholds), default=0.0)
    assert figures.true_positives_at[0.01].value == pytest.approx(expected)


def test_perfect_scores_are_perfect():
    members = np.arange(2000) < 1000
    figures = membership_figures(members.astype(float), members)
    assert (figures.area.value, figures.advantage.value) == (1.0, 1.0)
    assert figures.true_positives_at[0.001].value == 1.0
    assert figures.true_positives_at[0.001].low > 0.99


def test_a_share_of_false_positives_that_no_sample_stands_for_is_left_out():
    scores, members = shifted(np.random.default_rng(3), 1.0, count=100)
    assert set(membership_figures(scores, members).true_positives_at) == {0.01}


def test_arrays_that_do_not_fit_are_refused():
    with pytest.raises(ParameterError):
        membership_figures(np.array([1.0, np.nan]), np.array([True, False]))
    with pytest.raises(ParameterError):
        membership_figures(np.zeros(3), np.zeros(2, dtype=bool))
    with pytest.raises(ParameterError, match="others"):
        membership_figures(np.zeros(3), np.ones(3, dtype=bool))
