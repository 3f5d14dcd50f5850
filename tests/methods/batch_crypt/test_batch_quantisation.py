"""BatchCrypt's quantisation: its bounds, its rounding, and sums that are exact, in the clear and under Paillier."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

import shieldfl as sf
from encryption.paillier_keys import authority_for
from shieldfl.errors import ArrayTypeError, ParameterError, RangeError
from shieldfl.methods.batch_crypt.quantisation import (
    clip_bounds,
    clip_factor,
    dequantise,
    largest_magnitude,
    layer_ranges,
    paillier_parameters,
    quantise,
)

OFFSETS = (0, 40, 40, 41, 100)


def update(seed: int, size: int = 100) -> np.ndarray:
    return np.random.default_rng(seed).normal(0.0, 0.05, size).astype(np.float32)


def bounds_of(updates: list[np.ndarray], width: int = 8) -> np.ndarray:
    return clip_bounds([layer_ranges(one, OFFSETS) for one in updates], OFFSETS, width)


def expected_error(alpha: float, width: int) -> float:
    """Mean squared error of clipping a standard normal value, and of rounding it, as published."""
    tail = math.erfc(alpha / math.sqrt(2))
    clipping = (1 + alpha**2) * tail - math.sqrt(2 / math.pi) * alpha * math.exp(-(alpha**2) / 2)
    return clipping + 2 * alpha**2 * (2**width - 2) / (3 * 2 ** (3 * width))


def test_clip_factors_are_the_published_ones() -> None:
    assert clip_factor(8) == pytest.approx(3.7736, abs=5e-5)
    assert clip_factor(16) == pytest.approx(5.8296, abs=5e-4)


@pytest.mark.parametrize("width", range(2, 17))
def test_a_clip_factor_has_the_least_error(width: int) -> None:
    best = minimize_scalar(
        expected_error, bounds=(0.5, 8), args=(width,), method="bounded", options={"xatol": 1e-9}
    )
    assert clip_factor(width) == pytest.approx(best.x, abs=1e-3)


def test_clip_factors_rise_with_the_width() -> None:
    assert (np.diff([clip_factor(width) for width in range(2, 33)]) > 0.1).all()


def test_ranges_are_by_layer() -> None:
    values = update(1)
    ranges = layer_ranges(values, OFFSETS)
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
    np.testing.assert_allclose(clip_bounds(ranges, (0, 100), 8), [3.77355 * sigma], rtol=1e-5)


@pytest.mark.parametrize("values", [1_000, 100_000])
def test_a_bound_is_about_so_many_deviations_of_normal_values(values: int) -> None:
    offsets = (0, values)
    ranges = [layer_ranges(update(seed, values), offsets) for seed in range(3)]
    assert clip_bounds(ranges, offsets, 16)[0] == pytest.approx(0.05 * clip_factor(16), rel=0.15)


def test_constant_and_empty_layers_have_bounds_that_lose_nothing() -> None:
    values = np.array([0, 0, 0, -2.5, 7, 7], dtype=np.float32)
    offsets = (0, 3, 3, 4, 6)
    bounds = clip_bounds([layer_ranges(values, offsets)], offsets, 8)
    assert bounds.tolist() == [0.0, 0.0, 2.5, 7.0]
    quantised = quantise(values, offsets, bounds, 8, 1)
    assert quantised.values.tolist() == [0, 0, 0, -127, 127, 127]
    assert quantised.saturated == 0
    np.testing.assert_allclose(dequantise(quantised.values, offsets, bounds, 8, 1), values, rtol=1e-15)


@given(
    width=st.integers(2, 32),
    parties=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
    alpha=st.floats(2.0**-149, 2.0**120),
)
def test_every_value_is_rounded_to_a_neighbouring_step(
    width: int, parties: int, seed: int, alpha: float
) -> None:
    rng = np.random.default_rng(seed)
    values = rng.choice([1.0, -1.0, 0.0, 0.3, -0.999], 50) * alpha
    values = values.astype(np.float32)
    quantised = quantise(values, (0, 50), np.array([alpha]), width, parties, rng)
    step = parties * alpha / (2 ** (width - 1) - 1)
    assert np.abs(quantised.values).max() <= largest_magnitude(width, parties)
    clipped = np.clip(values.astype(np.float64), -alpha, alpha)
    # One step, and the rounding of the float64 division.
    assert (np.abs(quantised.values - clipped / step) < 1.0 + 1e-6).all()
    assert (quantised.values[values == 0] == 0).all()


def test_rounding_is_unbiased_on_both_sides_of_zero() -> None:
    values = np.repeat(np.array([0.26, -0.26, 0.9, -0.9], dtype=np.float32), 20_000)
    quantised = quantise(values, (0, values.size), np.array([1.0]), 3, 2, np.random.default_rng(5))
    means = quantised.values.reshape(4, -1).mean(axis=1)
    # Steps of 2/3. A mean of 20,000 draws of 0 or 1 has a deviation below 0.0036.
    np.testing.assert_allclose(means, np.array([0.26, -0.26, 0.9, -0.9]) * 1.5, atol=5 * 0.0036)


def test_rounding_follows_the_generator_and_else_differs() -> None:
    values, bounds = update(1, 1000), np.array([0.2])
    draws = [
        quantise(values, (0, 1000), bounds, 8, 4, np.random.default_rng(seed)).values for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(draws[0], draws[1])
    assert (draws[0] != draws[2]).any()
    first, second = (quantise(values, (0, 1000), bounds, 8, 4).values for _ in range(2))
    assert (first != second).any()


def test_what_is_out_of_range_saturates_and_is_counted() -> None:
    values = np.array([5.0, -9.0, 1.0, 0.5, 3.0, 0.0], dtype=np.float32)
    quantised = quantise(values, (0, 4, 6), np.array([1.0, 0.0]), 8, 1)
    assert quantised.saturated == 3
    assert quantised.values[:3].tolist() == [127, -127, 127]
    assert quantised.values[4:].tolist() == [0, 0]


@given(width=st.integers(2, 32), parties=st.integers(1, 2**20))
def test_fields_hold_every_sum_and_waste_at_most_two_bits(width: int, parties: int) -> None:
    parameters = paillier_parameters(width, parties)
    field_bits = parameters.value_bits + math.ceil(math.log2(parties))
    assert parameters.fraction_bits == 0
    assert parameters.max_clients == parties
    assert largest_magnitude(width, parties) <= 2 ** (parameters.value_bits - 1) - 1
    assert parties * largest_magnitude(width, parties) < 2 ** (field_bits - 1)
    if parties < 2 ** (width - 1):
        assert field_bits <= width + 2


@pytest.mark.parametrize(("width", "parties"), [(8, 3), (16, 5), (2, 4)])
def test_sums_under_paillier_are_exact(width: int, parties: int) -> None:
    authority = authority_for(paillier_parameters(width, parties, key_bits=2048))
    encryptor = sf.paillier.Encryptor(authority.public_key, threads=1)
    aggregator = sf.paillier.Aggregator(authority.public_key, threads=1)
    updates = [update(seed) for seed in range(parties)]
    for one in updates:
        one[::7] = 9.0  # all of these saturate, so that the sums reach the edge of their range
    bounds = np.minimum(bounds_of(updates, width), 0.1)
    integers = [quantise(one, OFFSETS, bounds, width, parties) for one in updates]
    for one in integers:
        assert one.saturated >= 15
        aggregator.add(encryptor.encrypt(one.values.astype(np.float64)))
    opened = authority.open(aggregator.total())
    sums = np.sum([one.values for one in integers], axis=0)
    np.testing.assert_array_equal(opened, sums)
    assert np.abs(sums).max() >= 2 ** (width - 1) - 1
    np.testing.assert_array_equal(
        dequantise(opened, OFFSETS, bounds, width, parties), dequantise(sums, OFFSETS, bounds, width, parties)
    )


@given(width=st.integers(4, 24), parties=st.integers(1, 12), seed=st.integers(0, 2**32 - 1))
def test_a_dequantised_sum_is_within_a_step_for_each_party(width: int, parties: int, seed: int) -> None:
    updates = [update(seed + client) for client in range(parties)]
    bounds = bounds_of(updates, width)
    sums = np.sum([quantise(one, OFFSETS, bounds, width, parties).values for one in updates], axis=0)
    alphas = np.repeat(bounds, np.diff(OFFSETS))
    exact = np.sum([np.clip(one.astype(np.float64), -alphas, alphas) for one in updates], axis=0)
    steps = parties * alphas / (2 ** (width - 1) - 1)
    assert (
        np.abs(dequantise(sums, OFFSETS, bounds, width, parties) - exact) <= parties * steps * (1 + 1e-9)
    ).all()


@pytest.mark.parametrize("width", [0, 1, 33, -8, 8.5])
def test_other_widths_are_refused(width: int) -> None:
    for call in (
        lambda: clip_factor(width),
        lambda: largest_magnitude(width, 3),
        lambda: quantise(update(0), OFFSETS, np.ones(4), width, 3),
        lambda: dequantise(np.zeros(100), OFFSETS, np.ones(4), width, 3),
    ):
        with pytest.raises(ParameterError, match="width"):
            call()


@pytest.mark.parametrize("parties", [0, -1, 2**20 + 1, 1.5])
def test_other_numbers_of_parties_are_refused(parties: int) -> None:
    with pytest.raises(ParameterError, match="parties"):
        quantise(update(0), OFFSETS, np.ones(4), 8, parties)
    with pytest.raises(ParameterError, match="parties"):
        dequantise(np.zeros(100), OFFSETS, np.ones(4), 8, parties)


@pytest.mark.parametrize("offsets", [(), (0,), (0, 99), (1, 100), (0, 60, 50, 100)])
def test_offsets_that_do_not_fit_are_refused(offsets: tuple[int, ...]) -> None:
    bounds = np.ones(max(len(offsets) - 1, 0))
    for call in (
        lambda: layer_ranges(update(0), offsets),
        lambda: quantise(update(0), offsets, bounds, 8, 3),
        lambda: dequantise(np.zeros(100), offsets, bounds, 8, 3),
    ):
        with pytest.raises(ParameterError, match="offsets"):
            call()


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, 1e-200, 1e200])
def test_bad_bounds_are_refused(bad: float) -> None:
    with pytest.raises(ParameterError, match="bound"):
        quantise(update(0), (0, 100), np.array([bad]), 8, 3)
    with pytest.raises(ParameterError, match="2 clip bounds for 1 layers"):
        quantise(update(0), (0, 100), np.array([1.0, bad]), 8, 3)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_updates_are_refused(bad: float) -> None:
    values = update(0)
    values[3] = bad
    with pytest.raises(RangeError, match="NaN or infinity"):
        layer_ranges(values, OFFSETS)
    with pytest.raises(RangeError, match="NaN or infinity"):
        quantise(values, OFFSETS, np.ones(4), 8, 3)
    with pytest.raises(ArrayTypeError):
        quantise(update(0).astype(np.float64), OFFSETS, np.ones(4), 8, 3)


def test_bad_ranges_are_refused() -> None:
    good = np.array([[-1, 1]], dtype=np.float32)
    with pytest.raises(ParameterError, match="no client"):
        clip_bounds([], (0, 9), 8)
    with pytest.raises(ParameterError, match="shape"):
        clip_bounds([good, good[0]], (0, 9), 8)
    with pytest.raises(ParameterError, match="offsets"):
        clip_bounds([good], (), 8)
    for bad in ([[1, -1]], [[math.nan, 1]], [[-math.inf, 1]]):
        with pytest.raises(RangeError, match="minimum above"):
            clip_bounds([good, np.array(bad, dtype=np.float32)], (0, 9), 8)
    with pytest.raises(RangeError, match="at most one"):
        clip_bounds([good], (0, 1), 8)


def test_impossible_sums_are_refused() -> None:
    bounds = np.array([1.0])
    most = 3 * largest_magnitude(8, 3)
    dequantise(np.array([most, -most]), (0, 2), bounds, 8, 3)
    for bad in (most + 1.0, -most - 1.0, 0.5, math.nan, math.inf):
        with pytest.raises(RangeError, match="whole number"):
            dequantise(np.array([0.0, bad]), (0, 2), bounds, 8, 3)
