"""Clipping must hold its bound without tolerance; noise must have the stated distribution."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shieldfl._core as _core
from shieldfl.errors import ArrayTypeError, ParameterError, RangeError
from shieldfl.privacy.noise import AdaptiveClip, clip_l2, gaussian_noise

DRAWS = 1_000_000
# A standard score beyond 6 comes once in 5e8 honest runs.
SCORE_LIMIT = 6.0


def test_a_long_vector_is_scaled_in_its_direction() -> None:
    vector = np.array([3.0, 0.0, -4.0], dtype=np.float32)
    clipped, norm, was_clipped = clip_l2(vector, 2.5)
    np.testing.assert_allclose(clipped, [1.5, 0.0, -2.0], rtol=1e-6)
    assert clipped.dtype == np.float32
    assert norm == 5.0
    assert was_clipped
    np.testing.assert_array_equal(vector, [3.0, 0.0, -4.0])


@pytest.mark.parametrize("norm", [5.0, 5.1, 1e30])
def test_a_short_vector_is_copied_unchanged(norm: float) -> None:
    vector = np.array([3.0, 4.0], dtype=np.float32)
    clipped, original, was_clipped = clip_l2(vector, norm)
    assert (clipped.tolist(), original, was_clipped) == ([3.0, 4.0], 5.0, False)
    clipped[0] = 9.0
    assert vector[0] == 3.0


@given(
    st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=40),
    st.floats(2.0**-60, 2.0**60, allow_nan=False),
)
def test_the_exact_norm_never_exceeds_the_bound(values: list[float], norm: float) -> None:
    clipped, _, was_clipped = clip_l2(np.array(values, dtype=np.float32), norm)
    exact = sum(Fraction(float(value)) ** 2 for value in clipped)
    # Where nothing was clipped the comparison itself was made in float64.
    slack = Fraction(1) if was_clipped else Fraction(1 + 1e-15)
    assert exact <= Fraction(norm) ** 2 * slack


def test_the_bound_holds_for_a_model_sized_vector() -> None:
    vector = np.random.default_rng(0).normal(0, 1, 235_146).astype(np.float32)
    clipped, norm, _ = clip_l2(vector, 1.0)
    assert norm == pytest.approx(math.sqrt(math.fsum(float(v) ** 2 for v in vector)), rel=1e-12)
    reached = math.sqrt(math.fsum(float(v) ** 2 for v in clipped))
    assert 1.0 - 1e-6 < reached <= 1.0


def test_large_values_do_not_overflow_the_norm() -> None:
    vector = np.full(4, np.finfo(np.float32).max, dtype=np.float32)
    clipped, norm, _ = clip_l2(vector, 1.0)
    assert norm == pytest.approx(2.0 * float(np.finfo(np.float32).max))
    np.testing.assert_allclose(clipped, 0.5, rtol=1e-6)


def test_zero_and_empty_vectors_pass() -> None:
    assert clip_l2(np.zeros(3, dtype=np.float32), 1.0)[1:] == (0.0, False)
    clipped, norm, was_clipped = clip_l2(np.empty(0, dtype=np.float32), 1.0)
    assert (clipped.size, norm, was_clipped) == (0, 0.0, False)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_is_refused_by_position(bad: float) -> None:
    vector = np.array([1.0, 2.0, bad, 3.0], dtype=np.float32)
    with pytest.raises(RangeError, match="position 2"):
        clip_l2(vector, 1.0)


@pytest.mark.parametrize("norm", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_clipping_norm_is_refused(norm: float) -> None:
    with pytest.raises(ParameterError, match="clipping norm"):
        clip_l2(np.ones(2, dtype=np.float32), norm)
    with pytest.raises(ParameterError, match="clipping norm"):
        AdaptiveClip(norm)


@pytest.mark.parametrize("vector", [np.ones(2), np.ones((2, 2), dtype=np.float32), [1.0, 2.0]])
def test_other_arrays_are_refused(vector: object) -> None:
    with pytest.raises(ArrayTypeError):
        clip_l2(vector, 1.0)  # type: ignore[arg-type]
    with pytest.raises(ArrayTypeError):
        gaussian_noise(vector, 1.0)  # type: ignore[arg-type]


def test_adaptive_clip_is_the_median_of_a_sliding_window() -> None:
    clip = AdaptiveClip(1.5, window=3)
    assert clip.norm() == 1.5
    medians = []
    for norm in (10.0, 2.0, 4.0, 100.0, 200.0):
        clip.observe(norm)
        medians.append(clip.norm())
    assert medians == [10.0, 6.0, 4.0, 4.0, 100.0]


def test_adaptive_clip_never_returns_zero() -> None:
    clip = AdaptiveClip(0.5, window=2)
    clip.observe(0.0)
    assert clip.norm() == 0.5


@pytest.mark.parametrize("norm", [-1.0, math.nan, math.inf])
def test_adaptive_clip_refuses_an_impossible_observation(norm: float) -> None:
    clip = AdaptiveClip(1.0)
    with pytest.raises(ParameterError, match="observed norm"):
        clip.observe(norm)
    assert clip.norm() == 1.0
    with pytest.raises(ParameterError, match="window"):
        AdaptiveClip(1.0, window=0)


@pytest.mark.parametrize("standard_deviation", [1e-3, 1.0, 250.0])
def test_noise_has_the_stated_moments(standard_deviation: float) -> None:
    noise = gaussian_noise(np.zeros(DRAWS, dtype=np.float32), standard_deviation).astype(np.float64)
    scaled = noise / standard_deviation
    # Standard errors of the first four moments of a standard normal sample.
    assert abs(scaled.mean()) * math.sqrt(DRAWS) < SCORE_LIMIT
    assert abs((scaled**2).mean() - 1.0) * math.sqrt(DRAWS / 2) < SCORE_LIMIT
    assert abs((scaled**3).mean()) * math.sqrt(DRAWS / 15) < SCORE_LIMIT
    assert abs((scaled**4).mean() - 3.0) * math.sqrt(DRAWS / 96) < SCORE_LIMIT


def test_noise_has_normal_tails() -> None:
    noise = gaussian_noise(np.zeros(DRAWS, dtype=np.float32), 1.0)
    for limit in (0.5, 1.0, 2.0, 3.0, 4.0):
        share = math.erfc(limit / math.sqrt(2))
        error = math.sqrt(share * (1 - share) * DRAWS)
        assert abs(np.count_nonzero(np.abs(noise) > limit) - share * DRAWS) < SCORE_LIMIT * error


def test_neighbouring_and_repeated_draws_are_independent() -> None:
    first = gaussian_noise(np.zeros(DRAWS, dtype=np.float32), 1.0).astype(np.float64)
    second = gaussian_noise(np.zeros(DRAWS, dtype=np.float32), 1.0).astype(np.float64)
    for other in (second, np.roll(first, 1), np.roll(first, 2), np.roll(first, DRAWS // 2)):
        assert abs((first * other).mean()) * math.sqrt(DRAWS) < SCORE_LIMIT


def test_noise_is_added_to_the_values_and_the_input_kept() -> None:
    vector = np.linspace(-5, 5, DRAWS, dtype=np.float32)
    kept = vector.copy()
    noised = gaussian_noise(vector, 0.5)
    assert noised.dtype == np.float32
    np.testing.assert_array_equal(vector, kept)
    residual = (noised.astype(np.float64) - vector) / 0.5
    assert abs(residual.mean()) * math.sqrt(DRAWS) < SCORE_LIMIT
    assert abs((residual * vector).mean()) * math.sqrt(DRAWS / (vector.astype(np.float64) ** 2).mean()) < 6


def test_zero_noise_copies_and_strided_input_works() -> None:
    vector = np.arange(10, dtype=np.float32)[::2]
    for standard_deviation in (0.0, 1e-30):
        noised = gaussian_noise(vector, standard_deviation)
        np.testing.assert_allclose(noised, vector, atol=1e-20)
        assert noised.flags.c_contiguous
        assert not np.shares_memory(noised, vector)
    assert gaussian_noise(np.empty(0, dtype=np.float32), 1.0).shape == (0,)


@pytest.mark.parametrize("standard_deviation", [-1e-9, math.nan, math.inf, -math.inf])
def test_an_impossible_standard_deviation_is_refused(standard_deviation: float) -> None:
    with pytest.raises(ParameterError, match="standard deviation"):
        gaussian_noise(np.zeros(2, dtype=np.float32), standard_deviation)


def test_the_core_adds_in_place() -> None:
    array = np.full(DRAWS, 2.0, dtype=np.float32)
    address = array.ctypes.data
    _core.add_gaussian(array, 3.0)
    assert array.ctypes.data == address
    scaled = (array.astype(np.float64) - 2.0) / 3.0
    assert abs(scaled.mean()) * math.sqrt(DRAWS) < SCORE_LIMIT
    assert abs((scaled**2).mean() - 1.0) * math.sqrt(DRAWS / 2) < SCORE_LIMIT
    before = array.copy()
    _core.add_gaussian(array, 0.0)
    np.testing.assert_array_equal(array, before)
