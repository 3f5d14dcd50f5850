from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from shieldfl.lab.fleet.encryption_plan import SecurityFloor, SensitivityCurve


def test_the_floor_is_equation_7():
    floor = SecurityFloor(exposed_share=0.5, exposure_decay=2.0)
    np.testing.assert_allclose(floor.shares(np.array([1.0, 0.5])), [1 - 0.5 / math.e**2, 1 - 0.5 / math.e])


def test_a_curve_of_four_scores():
    """Of 7, 2, 1 and 0."""
    curve = SensitivityCurve((0.0, 0.25, 0.5, 0.75, 1.0), (0.0, 0.7, 0.9, 1.0, 1.0))
    np.testing.assert_allclose(curve.least_ratio([0.0, 0.7, 0.9, 1.0]), [0.0, 0.25, 0.5, 0.75], atol=0.005)
    # The mean is 2.5: one score is above it, and two are above six tenths of it.
    assert curve.best_ratio() == pytest.approx(0.25, abs=0.005)
    assert curve.best_ratio(cost_weight=0.6) == pytest.approx(0.5, abs=0.005)
    assert curve.best_ratio(cost_weight=math.inf) == 0.0


def test_positions_above_the_mean_of_log_normal_scores():
    assert SensitivityCurve.log_normal(1.5).best_ratio() == pytest.approx(NormalDist().cdf(-0.75), rel=0.02)


def test_equal_scores_hold_what_they_are():
    curve = SensitivityCurve.log_normal(0.0)
    np.testing.assert_allclose(curve.least_ratio([0.1, 0.5]), [0.1, 0.5], atol=1e-9)


def test_ratios_are_clamped_between_the_constraints():
    curve = SensitivityCurve((0.0, 0.1, 1.0), (0.0, 0.5, 1.0))  # the top tenth holds half
    budgets = np.array([1.0, 0.3, 0.05])
    floor = SecurityFloor(exposed_share=0.5, exposure_decay=0.0)  # half of the sensitivity
    ratios, short = curve.mask_ratios(budgets, floor)
    np.testing.assert_allclose(ratios, [0.1, 0.1, 0.05], atol=1e-3)
    np.testing.assert_allclose(short, [0.0, 0.0, 0.05], atol=1e-3)
    ratios, short = curve.mask_ratios(budgets, floor, leakage_ratio=0.4)
    np.testing.assert_allclose(ratios, [0.4, 0.3, 0.05], atol=1e-3)
    np.testing.assert_allclose(short, [0.0, 0.1, 0.35], atol=1e-3)
    lax = SecurityFloor(exposed_share=1.0, exposure_decay=0.0)
    np.testing.assert_allclose(curve.mask_ratios(budgets, lax)[0], [0.1, 0.1, 0.05], atol=1e-3)
    np.testing.assert_allclose(curve.mask_ratios(budgets, lax, cost_weight=math.inf)[0], 0.0)
