"""BatchCrypt's quantisation: its bounds, its rounding, and sums that are exact, in the clear and under Paillier."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from shieldfl.errors import RangeError
from shieldfl.methods.batch_crypt import Quantisation, clip_factor

OFFSETS = (0, 40, 40, 41, 100)
RNG = np.random.default_rng(3)


def update(seed: int, size: int = 100) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.05, size).astype(np.float32)


def bounds_of(agreed: Quantisation, updates: list[np.ndarray]) -> np.ndarray:
    return agreed.bounds([agreed.ranges(one) for one in updates])


def expected_error(alpha: float, width: int) -> float:
    """Mean squared error of clipping a standard normal value, and of rounding it, as published."""
    tail = math.erfc(alpha / math.sqrt(2))
    clipping = (1 + alpha**2) * tail - math.sqrt(2 / math.pi) * alpha * math.exp(-(alpha**2) / 2)
    return clipping + 2 * alpha**2 * (2**width - 2) / (3 * 2 ** (3 * width))


def test_clip_factors_are_the_published_ones() -> None:
    assert clip_factor(8) == pytest.approx(3.7736, abs=5e-5)
    assert clip_factor(16) == pytest.approx(5.8296, abs=5e-4)
    assert (np.diff([clip_factor(width) for width in range(2, 33)]) > 0.1).all()


@pytest.mark.parametrize("width", range(2, 17))
def test_a_clip_factor_has_the_least_error(width: int) -> None:
    best = minimize_scalar(
        expected_error, bounds=(0.5, 8), args=(width,), method="bounded", options={"xatol": 1e-9}
    )
    assert clip_factor(width) == pytest.approx(best.x, abs=1e-3)


def test_ranges_are_by_layer() -> None:
    values = update(1)
    ranges = Quantisation(OFFSETS, 8, 3).ranges(values)
    assert ranges.dtype == np.float32
    assert ranges.tolist() == [
        [values[:40].min(), values[:40].max()],
        [0.0, 0.0],
        [values[40], values[40]],
        [values[41:].min(), values[41:].max()],
    ]


def test_bounds_follow_from_the_range_of_all_clients() -> None:
    ranges = [np.array([[-1, 2]], dtype=np.float32), np.array([[-3, 1]], dtype=np.float32)]
    sigma = 0.175 * (1 + math.sqrt(math.pi * math.log(4))) * 5 / math.sqrt(2 * math.log(200))
    bounds = Quantisation((0, 100), 8, 2).bounds(ranges)
    np.testing.assert_allclose(bounds, [3.77355 * sigma], rtol=1e-5)


def test_constant_and_empty_layers_have_bounds_that_lose_nothing() -> None:
    values = np.array([0, 0, 0, -2.5, 7, 7], dtype=np.float32)
    agreed = Quantisation((0, 3, 3, 4, 6), 8, 1)
    bounds = bounds_of(agreed, [values])
    assert bounds.tolist() == [0.0, 0.0, 2.5, 7.0]
    integers, saturated = agreed.quantise(values, bounds, RNG)
    assert integers.tolist() == [0, 0, 0, -127, 127, 127]
    assert saturated == 0
    np.testing.assert_allclose(agreed.dequantise(integers, bounds), values, rtol=1e-15)


@given(
    width=st.integers(2, 32),
    parties=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
    alpha=st.floats(2.0**-149, 2.0**120),
)
def test_every_value_is_rounded_to_a_neighbouring_step(
    width: int, parties: int, seed: int, alpha: float
) -> None:
    rng, agreed = np.random.default_rng(seed), Quantisation((0, 50), width, parties)
    values = (rng.choice([1.0, -1.0, 0.0, 0.3, -0.999], 50) * alpha).astype(np.float32)
    integers, _ = agreed.quantise(values, np.array([alpha]), rng)
    step = parties * alpha / (2 ** (width - 1) - 1)
    assert np.abs(integers).max() <= agreed.largest_magnitude
    clipped = np.clip(values.astype(np.float64), -alpha, alpha)
    # One step, and the rounding of the float64 division.
    assert (np.abs(integers - clipped / step) < 1.0 + 1e-6).all()
    assert (integers[values == 0] == 0).all()


def test_rounding_is_unbiased_on_both_sides_of_zero() -> None:
    values = np.repeat(np.array([0.26, -0.26, 0.9, -0.9], dtype=np.float32), 20_000)
    agreed = Quantisation((0, values.size), 3, 2)
    integers, _ = agreed.quantise(values, np.array([1.0]), np.random.default_rng(5))
    means = integers.reshape(4, -1).mean(axis=1)
    # Steps of 2/3. A mean of 20,000 draws of 0 or 1 has a deviation below 0.0036.
    np.testing.assert_allclose(means, np.array([0.26, -0.26, 0.9, -0.9]) * 1.5, atol=5 * 0.0036)


@given(width=st.integers(2, 32), parties=st.integers(1, 2**20))
def test_fields_hold_every_sum_and_waste_at_most_two_bits(width: int, parties: int) -> None:
    agreed = Quantisation(OFFSETS, width, parties)
    parameters, most = agreed.parameters(), agreed.largest_magnitude
    field_bits = parameters.value_bits + math.ceil(math.log2(parties))
    assert parameters.fraction_bits == 0
    assert parameters.max_clients == parties
    assert most <= 2 ** (parameters.value_bits - 1) - 1
    assert parties * most < 2 ** (field_bits - 1)
    if parties < 2 ** (width - 1):
        assert field_bits <= width + 2


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_updates_are_refused(bad: float) -> None:
    values = update(0)
    values[3] = bad
    with pytest.raises(RangeError, match="NaN or infinity"):
        Quantisation(OFFSETS, 8, 3).ranges(values)


@pytest.mark.parametrize("bad", [[[1, -1]], [[math.nan, 1]], [[-math.inf, 1]]])
def test_bad_ranges_are_refused(bad: list[list[float]]) -> None:
    good = np.array([[-1, 1]], dtype=np.float32)
    with pytest.raises(RangeError, match="minimum above"):
        Quantisation((0, 9), 8, 3).bounds([good, np.array(bad, dtype=np.float32)])
    with pytest.raises(RangeError, match="at most one"):
        Quantisation((0, 1), 8, 3).bounds([good])


def test_impossible_sums_are_refused() -> None:
    agreed, bounds = Quantisation((0, 2), 8, 3), np.array([1.0])
    most = 3 * agreed.largest_magnitude
    agreed.dequantise(np.array([most, -most]), bounds)
    for bad in (most + 1.0, -most - 1.0, 0.5, math.nan, math.inf):
        with pytest.raises(RangeError, match="whole number"):
            agreed.dequantise(np.array([0.0, bad]), bounds)
