"""A clipping norm that follows a quantile: the paper's update on a grid, and where it leads."""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pytest

from shieldfl.privacy.noise import MOST_EXPONENT, STEPS_PER_OCTAVE, ClipRule

PAPER = ClipRule(first_norm=0.1, quantile=0.5, learning_rate=0.2)


def test_norms_are_powers_of_the_root_of_two_that_a_step_is():
    assert PAPER.norm_at(0) == 0.1
    for octaves in (-16, -1, 1, 16):
        assert PAPER.norm_at(octaves * STEPS_PER_OCTAVE) == 0.1 * 2.0**octaves
    for exponent in (1, 7, 12_345, 65_535, -1, -40_000):
        exact = Decimal(PAPER.first_norm) * Decimal(2) ** (Decimal(exponent) / STEPS_PER_OCTAVE)
        assert abs(Decimal(PAPER.norm_at(exponent)) / exact - 1) < 32 * 2.0**-53
    grid = [PAPER.norm_at(exponent) for exponent in range(-300, 300)]
    assert grid == sorted(set(grid))


def test_a_round_moves_the_norm_as_the_paper_says():
    generator = np.random.default_rng(1)
    exponent, exact = 0, 0.1
    for share in generator.random(200):
        exponent = PAPER.moved(exponent, float(share))
        exact *= math.exp(-0.2 * (share - 0.5))
        assert PAPER.norm_at(exponent) == pytest.approx(exact, rel=200 * 1e-5)
    step = 0.2 * 0.5 / math.log(2.0) * STEPS_PER_OCTAVE
    assert PAPER.moved(0, 1.0) == -round(step)
    assert PAPER.moved(0, 0.0) == round(step)


@pytest.mark.parametrize(("share", "as_if"), [(1.7, 1.0), (-40.0, 0.0), (math.inf, 1.0)])
def test_no_sum_moves_it_by_more_than_all_clients_or_none_would(share, as_if):
    assert PAPER.moved(5, share) == PAPER.moved(5, as_if)


@pytest.mark.parametrize("learning_rate", [30.0, 1e308])
def test_it_stays_within_its_bounds(learning_rate):
    fast = ClipRule(1.0, 0.5, learning_rate)
    assert fast.moved(0, 0.0) == MOST_EXPONENT
    assert fast.moved(MOST_EXPONENT, 1.0) in (-MOST_EXPONENT, MOST_EXPONENT - round(15 / math.log(2) * 2**16))
    assert fast.moved(-MOST_EXPONENT, 1.0) == -MOST_EXPONENT


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("first_norm", [1e-3, 50.0])
def test_it_comes_to_the_quantile_and_stays_there_under_noise(quantile, first_norm):
    generator = np.random.default_rng(2)
    rule, exponent, found = ClipRule(first_norm, quantile, 0.2), 0, []
    for _ in range(400):
        norms = np.exp(generator.normal(0.0, 0.5, 100))
        share = float(np.mean(norms <= rule.norm_at(exponent))) + generator.normal(0.0, 0.05)
        exponent = rule.moved(exponent, share)
        found.append(rule.norm_at(exponent))
    everybody = np.exp(generator.normal(0.0, 0.5, 100_000))
    settled = np.array(found[-100:])
    assert np.mean(everybody <= np.exp(np.log(settled).mean())) == pytest.approx(quantile, abs=0.05)
