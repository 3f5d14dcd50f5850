"""SelectiveShield's noise zone under discrete Gaussian noise: on the grid, with the stated variance, charged alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.method_conformance import SteppedRun
from methods.selective_shield.selective_shield_twin import (
    SCORE_LIMIT,
    SIZE,
    assert_gaussian,
    values_of,
    zeros,
)
from methods.selective_shield.selective_shield_twin import shield as plain_shield
from methods.variants import Variant
from shieldfl.errors import ParameterError
from shieldfl.privacy.noise import float32_grid


def shield(**settings) -> Variant:
    return plain_shield(**{"noise_distribution": "discrete-gaussian", **settings})


def stay(round_number, client, start):
    return start.trained(start.parameters, start.buffers, np.zeros(start.parameters.size, dtype=np.float32))


def is_on_grid(values: np.ndarray, fraction_bits: int) -> bool:
    steps = np.ldexp(values.astype(np.float64), fraction_bits)
    return np.array_equal(steps, np.rint(steps))


@pytest.mark.parametrize(
    ("clients", "sigma", "clip", "distribution"),
    [
        (2, 0.5, 1.0, "discrete-gaussian"),
        (5, 2.0, 0.25, "discrete-gaussian"),
        (3, 1e-3, 100.0, "discrete-gaussian"),
        (5, 2.0, 0.25, "gaussian"),
    ],
)
def test_uploads_have_the_variance_that_the_paper_states(clients, sigma, clip, distribution):
    """On the grid, where noise is discrete. One client more is there, and not in the round."""
    settings = {"noise_multiplier": sigma, "clip_norm": clip, "noise_distribution": distribution}
    run = SteppedRun(shield(**settings), clients=clients + 1, initial=zeros(), train=stay)
    run.run_round(list(range(clients)))
    deviation = clip * sigma * math.sqrt(clients)
    uploads = [values_of(run, client) for client in range(clients)]
    for upload in uploads:
        assert upload.size == SIZE
        assert is_on_grid(upload, float32_grid(deviation)) or distribution == "gaussian"
        assert_gaussian(upload, deviation)  # text under eq. 21
    assert abs(np.corrcoef(uploads)[0, 1]) * math.sqrt(SIZE) < SCORE_LIMIT
    assert_gaussian(run.parameters, clip * sigma)


def test_trained_values_are_rounded_to_the_grid_and_floating_point_noise_is_not():
    settings = {"threshold": 0.5, "noise_multiplier": 0.5, "clip_norm": 0.25}
    fraction_bits = float32_grid(0.25 * 0.5 * math.sqrt(4))
    for distribution, expected in (("discrete-gaussian", True), ("gaussian", False)):
        run = SteppedRun(shield(noise_distribution=distribution, **settings))
        run.run_round()
        assert is_on_grid(values_of(run, 0), fraction_bits) is expected


def test_an_adaptive_norm_sets_the_grid_too():
    def step(round_number, client, start):
        moved = start.parameters + np.float32(1e-3 / math.sqrt(SIZE))
        return start.trained(moved, start.buffers, np.zeros(SIZE, dtype=np.float32))

    run = SteppedRun(shield(noise_multiplier=3.0, adaptive_clip=True), clients=2, initial=zeros(), train=step)
    for norm in (1.0, 1e-3):  # the second is the norm observed in the first round
        run.run_round()
        deviation = 3.0 * norm * math.sqrt(2.0)
        assert_gaussian(values_of(run, 0), deviation)
    # Norms are observed to a relative 1e-6 of 1e-3, which does not move the deviation across a power of two.
    assert is_on_grid(values_of(run, 0), float32_grid(deviation))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise_multiplier": 1e5}, "too large for discrete-gaussian noise on 20000 parameters of 4 clients"),
        ({"noise_multiplier": 1.5, "clip_norm": 2.0**20}, "below 2\\^21"),  # only with the sqrt of 4 clients
        ({"noise_multiplier": 2.0**-29, "clip_norm": 2.0**-101}, "at least 2\\^-129"),
        ({"target_epsilon": 1.0, "clip_norm": 2.0**20}, "below 2\\^21"),
    ],
)
def test_settings_that_no_grid_fits_are_refused_before_a_round(settings, message):
    with pytest.raises(ParameterError, match=message):
        SteppedRun(shield(**settings), initial=zeros())
    SteppedRun(shield(noise_distribution="gaussian", **settings), initial=zeros())


@given(st.floats(2.0**-129, 2.0**20), st.integers(-(2**37), 2**37))
def test_float32_does_not_leave_the_grid(deviation, steps):
    fraction_bits = float32_grid(deviation)
    assert 2.0**20 <= math.ldexp(deviation, fraction_bits) < 2.0**21
    exact = math.ldexp(steps, -fraction_bits)
    sent = np.array([exact]).astype(np.float32)
    assert is_on_grid(sent, fraction_bits)
    if abs(steps) <= 2**24:
        assert float(sent[0]) == exact


@pytest.mark.parametrize("deviation", [0.0, -1.0, math.nan, math.inf, 2.0**21, 2.0**-130])
def test_a_deviation_without_a_grid_is_refused(deviation):
    with pytest.raises(ParameterError, match="standard deviation"):
        float32_grid(deviation)
