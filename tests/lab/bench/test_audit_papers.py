"""bench/audit_papers.py: which cells and settings a table has, when a rate is shown, when figures agree."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

import audit_papers
from paper_attacks import success_matrix as matrix
from paper_attacks import victims
from paper_attacks.agreement import agreement, shows_near_zero
from paper_attacks.label_tries import Figure
from shieldfl.lab.simulation.data import load_dataset
from shieldfl.learning.networks import build_model


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits")


@pytest.mark.parametrize(
    ("successes", "tried", "shown"),
    [(0, 599, False), (0, 600, True), (1, 600, False), (1, 1000, True), (2, 1000, False), (0, 0, False)],
)
def test_six_hundred_tries_show_a_rate_near_zero(successes, tried, shown):
    assert shows_near_zero(successes, tried) is shown


@pytest.mark.parametrize(
    ("paper", "ours", "said"),
    [
        ([0.4, 0.9], [0.5, 0.8], "values"),
        ([0.4, 0.9], [0.0, 0.01], "order"),
        ([0.4, 0.4, 0.9], [0.7, 0.6, 0.71], "order"),
        ([0.4, 0.9], [0.7, 0.7], "no"),
        ([0.4, 0.4], [0.7, 0.8], "no"),
    ],
)
def test_figures_agree_by_value_or_else_by_order(paper, ours, said):
    assert agreement(paper, ours) == said


def test_a_coarse_matrix_is_a_cross_and_the_full_one_a_grid():
    assert len(matrix.full_grid()) == len(matrix.SIGMAS) * len(matrix.ETAS) == 56
    cells = matrix.cross()
    assert len(set(cells)) == len(cells) == len(matrix.SIGMAS) + len(matrix.ETAS) - 1
    assert all(0.0 in (cell.sigma, cell.eta) for cell in cells)


def fails_from(sigma: float, eta: float):
    """An attack that succeeds below both."""
    return lambda number, cells: ((cell.sigma < sigma and cell.eta < eta, 20.0) for cell in cells)


def counts_of(sigma: float, eta: float, most: int = 600, *, stops_early: bool = True):
    tried = matrix.Matrix(matrix.cross(), most, stops_early=stops_early)
    tried.run(fails_from(sigma, eta), lambda: 1.0)
    return tried.counts


def test_a_coarse_matrix_tries_often_where_it_is_in_doubt():
    counts = counts_of(0.005, 0.6)
    often = {(cell.sigma, cell.eta) for cell, found in counts.items() if found.tried > 20}
    assert often == {(0.005, 0.0), (0.0, 0.6)}
    assert all(found.tried == 600 for found in counts.values() if found.tried > 20)
    assert matrix.least(counts, "sigma") == (0.005, 0.005)
    assert matrix.least(counts, "eta") == (0.6, 0.6)


def test_where_all_is_encrypted_nothing_is_tried():
    counts = counts_of(math.inf, math.inf, most=3, stops_early=False)
    assert all(cell.eta < 1 and found.tried == 3 for cell, found in counts.items())
    assert matrix.least(counts, "eta") == (1.0, 1.0)
    assert matrix.least(counts, "sigma") == (None, None)


@pytest.fixture(scope="module")
def victim(digits):
    """Four samples, of a model whose gradients are longer than the norm that they are clipped to."""
    model = build_model("linear", digits.feature_shape, 10, 0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(30)
    batch = victims.Batch(10 * digits.train_features[:4], digits.train_labels[:4])
    return victims.Victim(model, batch, victims.Encrypted(model, [batch]), 0, (0.0, 1.0))


def test_noise_is_on_the_sum_of_clipped_gradients(victim):
    clipped = victim.observed(1e-9, 0.0).gradient
    plain = victim.observed(0.0, 0.0).gradient
    assert np.linalg.norm(plain) > victims.CLIP_NORM >= np.linalg.norm(clipped)
    noised = victim.observed(1.0, 0.0)
    assert noised.noise_deviation == pytest.approx(4.7 / 4)
    assert np.std(noised.gradient - clipped) == pytest.approx(4.7 / 4, rel=0.1)


def test_the_largest_magnitudes_are_hidden(victim):
    magnitudes, known = np.abs(victim.observed(0.0, 0.0).gradient), victim.observed(0.0, 0.25).known
    assert (~known).sum() == round(0.25 * known.size)
    assert magnitudes[~known].min() >= magnitudes[known].max()
    assert victim.observed(0.0, 1.0) is None


def test_hidden_values_can_be_matched_as_random_ones(victim):
    observed = victim.observed(0.0, 0.25)
    matched = victims.random_where_hidden(observed, 0)
    assert matched.known.all()
    np.testing.assert_array_equal(matched.change[observed.known], observed.change[observed.known])
    assert np.abs(matched.change[~observed.known] - observed.change[~observed.known]).min() > 0


def test_what_is_kept_is_json():
    kept = audit_papers.plain({1: [Figure.of([0.5]), (math.nan, True)]})
    assert json.loads(json.dumps(kept, allow_nan=False)) == {
        "1": [{"mean": 0.5, "low": None, "high": None}, [None, True]]
    }
