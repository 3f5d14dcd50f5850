"""Clipping holds its bound without tolerance; noise and shares of it have the stated distribution."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shieldfl._core as _core
from privacy.moments import SCORE_LIMIT, assert_normal
from reference.distributed_noise import AliasTable
from shieldfl.errors import ArrayTypeError, ParameterError, RangeError
from shieldfl.privacy.noise import (
    MOST_EXPONENT,
    STEPS_PER_OCTAVE,
    AdaptiveClip,
    ClipRule,
    NoiseTable,
    _tail,
    clip_and_noise,
    discrete_gaussian_noise,
    gaussian_noise,
    grid_variance,
    mean_of_total,
    noise_share,
    noise_table,
)

DRAWS = 1_000_000
WITHOUT_NOISE = [
    partial(clip_and_noise, standard_deviation=0.0),
    # At 2^-12 steps of deviation a draw differs from 0 once in exp(2^23).
    partial(discrete_gaussian_noise, standard_deviation=2.0**-42, fraction_bits=30),
]
CLIPS = pytest.mark.parametrize("clip", WITHOUT_NOISE, ids=["clip", "discrete"])


@CLIPS
def test_a_long_vector_is_scaled_in_its_direction_and_kept_itself(clip):
    vector = np.array([3.0, 0.0, -4.0], dtype=np.float32)
    clipped, norm, was_clipped = clip(vector, 2.5)
    np.testing.assert_allclose(clipped, [1.5, 0.0, -2.0], rtol=1e-6)
    assert (norm, was_clipped) == (5.0, True)
    np.testing.assert_array_equal(vector, [3.0, 0.0, -4.0])
    assert clip(vector[:0], 1.0)[0].shape == (0,)
    assert clip(np.zeros(3, dtype=np.float32), 1.0)[1:] == (0.0, False)


@pytest.mark.parametrize("norm", [5.0, 5.1, 1e30])
def test_a_short_vector_is_copied_unchanged(norm):
    vector = np.array([3.0, 4.0], dtype=np.float32)
    clipped, original, was_clipped = clip_and_noise(vector, norm, 0.0)
    assert (clipped.tolist(), original, was_clipped) == ([3.0, 4.0], 5.0, False)
    clipped[0] = 9.0
    assert vector[0] == 3.0
    assert clipped.dtype == np.float32


@given(
    st.lists(st.floats(-(2.0**99), 2.0**99, width=32), min_size=1, max_size=40),
    st.floats(2.0**-60, 2.0**60, allow_nan=False),
)
def test_the_exact_norm_never_exceeds_the_bound(values, norm):
    clipped, _, was_clipped = clip_and_noise(np.array(values, dtype=np.float32), norm, 0.0)
    exact = sum(Fraction(float(value)) ** 2 for value in clipped)
    # Where nothing was clipped the comparison itself was made in float64.
    slack = Fraction(1) if was_clipped else Fraction(1 + 1e-15)
    assert exact <= Fraction(norm) ** 2 * slack


@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=30),
    st.floats(1e-3, 1e6),
    st.integers(14, 24),
)
def test_on_the_grid_the_exact_norm_never_exceeds_the_bound(values, norm, fraction_bits):
    deviation = 2.0 ** -(12 + fraction_bits)
    vector = np.array(values, dtype=np.float32)
    rounded, original, _ = discrete_gaussian_noise(vector, norm, deviation, fraction_bits)
    assert sum(Fraction(float(value)) ** 2 for value in rounded) <= Fraction(norm) ** 2
    assert original == pytest.approx(math.sqrt(math.fsum(float(value) ** 2 for value in vector)), rel=1e-12)


def test_the_bound_holds_for_a_model_sized_vector_and_large_values_do_not_overflow_it():
    vector = np.random.default_rng(0).normal(0, 1, 235_146).astype(np.float32)
    clipped, norm, _ = clip_and_noise(vector, 1.0, 0.0)
    assert norm == pytest.approx(math.sqrt(math.fsum(float(v) ** 2 for v in vector)), rel=1e-12)
    assert 1.0 - 1e-6 < math.sqrt(math.fsum(float(v) ** 2 for v in clipped)) <= 1.0
    largest = float(np.finfo(np.float32).max)
    clipped, norm, _ = clip_and_noise(np.full(4, largest, dtype=np.float32), 1.0, 0.0)
    assert norm == pytest.approx(2.0 * largest)
    np.testing.assert_allclose(clipped, 0.5, rtol=1e-6)


@CLIPS
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_no_number_is_refused_by_position(clip, bad):
    vector = np.ones(5000, dtype=np.float32)
    vector[[4100, 4999]] = bad, np.inf
    with pytest.raises(RangeError, match="position 4100"):
        clip(vector, 1.0)


@pytest.mark.parametrize("norm", [0.0, -1.0, 2.0**-101, math.nan, math.inf, "1"])
def test_an_impossible_clipping_norm_is_refused(norm):
    for clip in WITHOUT_NOISE:
        with pytest.raises(ParameterError, match="clipping norm"):
            clip(np.ones(2, dtype=np.float32), norm)


@pytest.mark.parametrize(
    "vector", [np.ones(2), np.ones((2, 2), np.float32), np.ones(4, np.float32)[::2], [1.0]]
)
def test_other_arrays_are_refused(vector):
    for take in (*WITHOUT_NOISE, gaussian_noise):
        with pytest.raises(ArrayTypeError):
            take(vector, 1.0)


@pytest.mark.parametrize("standard_deviation", [-1e-9, math.nan, math.inf, -math.inf, "1"])
def test_an_impossible_standard_deviation_is_refused(standard_deviation):
    vector = np.zeros(2, dtype=np.float32)
    for refused in (
        lambda: gaussian_noise(vector, standard_deviation),
        lambda: clip_and_noise(vector, 1.0, standard_deviation),
        lambda: discrete_gaussian_noise(vector, 1.0, standard_deviation, 10),
    ):
        with pytest.raises(ParameterError, match="standard deviation"):
            refused()
    with pytest.raises(ParameterError, match="threads"):
        clip_and_noise(vector, 1.0, 1.0, threads=0)


def test_adaptive_clip_is_the_median_of_a_sliding_window_and_never_zero():
    clip = AdaptiveClip(1.5)
    assert clip.norm() == 1.5
    medians = []
    for norm in range(1, 13):
        clip.observe(float(norm))
        medians.append(clip.norm())
    assert medians == [*(1.0 + n / 2 for n in range(10)), 6.5, 7.5]
    for _ in range(7):
        clip.observe(0.0)
    assert clip.norm() == 1.5


@pytest.mark.parametrize("standard_deviation", [1e-3, 1.0, 250.0])
def test_noise_has_the_stated_moments(standard_deviation):
    noise = gaussian_noise(np.zeros(DRAWS, dtype=np.float32), standard_deviation).astype(np.float64)
    assert_normal(noise / standard_deviation)


def test_noise_has_normal_tails():
    noise = gaussian_noise(np.zeros(DRAWS, dtype=np.float32), 1.0)
    for limit in (0.5, 1.0, 2.0, 3.0, 4.0):
        share = math.erfc(limit / math.sqrt(2))
        error = math.sqrt(share * (1 - share) * DRAWS)
        assert abs(np.count_nonzero(np.abs(noise) > limit) - share * DRAWS) < SCORE_LIMIT * error


def test_neighbouring_and_repeated_draws_are_independent():
    first, second = (
        gaussian_noise(np.zeros(DRAWS, dtype=np.float32), 1.0).astype(np.float64) for _ in range(2)
    )
    for other in (second, np.roll(first, 1), np.roll(first, 2), np.roll(first, DRAWS // 2)):
        assert abs((first * other).mean()) * math.sqrt(DRAWS) < SCORE_LIMIT


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_noise_is_added_to_what_is_left_after_clipping_and_the_input_kept(threads):
    vector = np.random.default_rng(1).normal(0.0, 1.0, DRAWS).astype(np.float32)
    kept = vector.copy()
    for noised, expected in (
        (gaussian_noise(vector, 0.5, threads=threads), vector),
        (clip_and_noise(vector, 100.0, 0.5, threads=threads)[0], clip_and_noise(vector, 100.0, 0.0)[0]),
    ):
        assert noised.dtype == np.float32
        np.testing.assert_array_equal(vector, kept)
        residual = (noised.astype(np.float64) - expected) / 0.5
        assert_normal(residual)
        assert (
            abs((residual * vector).mean()) * math.sqrt(DRAWS / (vector.astype(np.float64) ** 2).mean()) < 6
        )


def test_discrete_noise_is_on_the_grid_with_the_stated_moments():
    draws = 200_000
    vector = np.full(draws, 0.125, dtype=np.float32)
    noised, norm, was_clipped = discrete_gaussian_noise(vector, 1e3, 2.0, 20)
    assert noised.dtype == np.float64
    assert not was_clipped
    assert norm == pytest.approx(0.125 * math.sqrt(draws))
    np.testing.assert_array_equal(noised * 2**20, np.rint(noised * 2**20))
    assert_normal((noised - 0.125) / 2.0)
    again = discrete_gaussian_noise(vector, 1e3, 2.0, 20, threads=2)[0]
    assert abs(((noised - 0.125) * (again - 0.125)).mean()) * math.sqrt(draws) / 4.0 < SCORE_LIMIT


def test_zero_noise_copies():
    vector = np.arange(10, dtype=np.float32)
    for standard_deviation in (0.0, 1e-30):
        noised = gaussian_noise(vector, standard_deviation)
        np.testing.assert_allclose(noised, vector, atol=1e-20)
        assert noised.flags.c_contiguous
        assert not np.shares_memory(noised, vector)
    assert gaussian_noise(np.empty(0, dtype=np.float32), 1.0).shape == (0,)


@given(st.floats(2.0**-11, 2.0**23), st.integers(0, 40))
def test_the_variance_is_never_less_than_asked_for(steps, fraction_bits):
    deviation = math.ldexp(steps, -fraction_bits)
    asked = (Fraction(deviation) * 2**fraction_bits) ** 2
    variance = grid_variance(deviation, fraction_bits)
    assert asked <= variance <= asked + Fraction(1, 2**24) * max(1, 2 * asked)
    assert variance.numerator <= 2**48
    assert variance.denominator <= 2**24


@pytest.mark.parametrize(
    ("norm", "deviation", "fraction_bits", "message"),
    [
        (1.0, 0.0, 10, "standard deviation"),
        (1.0, 2.0**-23, 10, "fraction_bits accordingly"),
        (1.0, 2.0**15, 10, "fraction_bits accordingly"),
        (1.0, 1.0, -1, "fraction_bits"),
        (1.0, 1.0, 151, "at most 150"),
        (2.0**41, 1.0, 10, "fewer fraction bits"),
        (0.01, 1.0, 5, "more fraction bits"),
    ],
)
def test_numbers_that_fit_no_grid_are_refused(norm, deviation, fraction_bits, message):
    with pytest.raises(ParameterError, match=message):
        discrete_gaussian_noise(np.ones(4, dtype=np.float32), norm, deviation, fraction_bits)


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


SEED = bytes(range(32))
BOUNDS: dict[str, Any] = {
    "clip_norm": 10.0,
    "steps_per_unit": 500.0,
    "rotation_seed": SEED,
    "norm_bound_squared": 2**60,
    "most_rounded": 2**20,
    "most_sent": 2**21,
    "table": noise_table("discrete-gaussian", Fraction(400)),
}


def random_update(size: int, norm: float) -> np.ndarray:
    values = np.random.default_rng(size).standard_normal(size)
    return (values * (norm / np.linalg.norm(values))).astype(np.float32)


@pytest.mark.parametrize("distribution", ["discrete-gaussian", "skellam"])
def test_the_mean_of_a_total_has_the_noise_of_its_shares(distribution: Any) -> None:
    clients, size, variance = 5, 60_001, Fraction(900, 7)
    updates = [random_update(size, norm) for norm in (1.0, 2.0, 3.0, 4.0, 5.0)]
    table = noise_table(distribution, variance)
    shares, clipped = zip(
        *(noise_share(update, **BOUNDS | {"table": table}) for update in updates), strict=True
    )
    assert all(share.dtype == np.int32 for share in shares)
    assert not any(clipped)
    total = np.sum(shares, axis=0, dtype=np.float64)
    mean = mean_of_total(total, clients=clients, steps_per_unit=500.0, rotation_seed=SEED)
    residual = (mean - np.mean(updates, axis=0, dtype=np.float64)) * 500.0 * clients
    # Rounding adds between 0 and 1/4 of variance a value: 1/6 where fractions are spread evenly.
    deviation = math.sqrt(clients * (float(variance) + 1 / 6))
    assert_normal(residual / deviation)


def test_long_updates_are_clipped_and_kept() -> None:
    update = random_update(1000, 50.0)
    before = update.copy()
    share, was_clipped = noise_share(update, **BOUNDS | {"table": noise_table("skellam", Fraction(1, 128))})
    assert was_clipped
    assert np.linalg.norm(share.astype(np.float64)) == pytest.approx(5000.0, rel=0.01)
    np.testing.assert_array_equal(update, before)


def test_two_shares_have_different_noise() -> None:
    update = np.zeros(1000, dtype=np.float32)
    first, second = (noise_share(update, **BOUNDS)[0] for _ in range(2))
    assert np.count_nonzero(first == second) < 100


def test_empty_updates_make_empty_shares() -> None:
    assert noise_share(np.zeros(0, np.float32), **BOUNDS)[0].shape == (0,)
    assert mean_of_total(np.zeros(0), clients=1, steps_per_unit=1.0, rotation_seed=SEED).shape == (0,)


def test_a_rotation_keeps_lengths_and_angles() -> None:
    vectors = np.random.default_rng(1).standard_normal((3, 777))
    turned = np.stack([_core.rotate(vector, SEED, False, 1.0) for vector in vectors])
    np.testing.assert_allclose(turned @ turned.T, vectors @ vectors.T, rtol=1e-12)
    np.testing.assert_allclose(_core.rotate(turned[0], SEED, True, 1.0), vectors[0], atol=1e-12)


def test_one_value_in_a_thousand_rotates_to_a_flat_vector() -> None:
    spike = np.zeros(1500, dtype=np.float32)
    spike[700] = 1.0
    turned = _core.rotate(spike, SEED, False, 1.0)
    # Of 2^10 values each transform makes equal magnitudes: nothing is above two of the first's.
    assert np.abs(turned).max() < 6 / math.sqrt(1024)
    assert np.abs(_core.rotate(spike, bytes(32), False, 1.0) - turned).max() > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clip_norm": 0.0}, "clipping norm"),
        ({"clip_norm": 2.0**101}, "clipping norm"),
        ({"steps_per_unit": 0.0}, "steps per unit"),
        ({"steps_per_unit": math.nan}, "steps per unit"),
        ({"steps_per_unit": 2.0**27}, "fewer steps"),
        ({"rotation_seed": bytes(31)}, "32 bytes"),
        ({"most_rounded": 0}, "rounded values"),
        ({"most_rounded": 2**30 + 1}, "rounded values"),
        ({"most_sent": 0}, "what is sent"),
        ({"threads": 0}, "threads"),
    ],
)
def test_numbers_out_of_bounds_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        noise_share(np.ones(4, dtype=np.float32), **BOUNDS | change)


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("wrong", [None, "x", [1], -1, 2**70, object()])
def test_what_is_no_bound_is_refused_without_the_update_in_the_error(name: str, wrong: Any) -> None:
    with pytest.raises(ParameterError) as refused:
        noise_share(np.full(4, 0.123, np.float32), **BOUNDS | {name: wrong})
    assert "0.123" not in f"{refused.value}{refused.value.__cause__}{refused.value.__context__}"


@pytest.mark.parametrize("changed", [{"clients": 0}, {"clients": -1}, {"steps_per_unit": math.nan}])
def test_a_mean_of_nobody_or_of_no_step_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        mean_of_total(np.ones(4), **{"clients": 1, "steps_per_unit": 1.0, "rotation_seed": SEED} | changed)


def test_bad_updates_are_refused() -> None:
    with pytest.raises(RangeError, match="position 1"):
        noise_share(np.array([1.0, np.nan], dtype=np.float32), **BOUNDS)
    with pytest.raises(RangeError, match="1000 roundings"):
        noise_share(np.ones(9, dtype=np.float32), **BOUNDS | {"norm_bound_squared": 1})
    with pytest.raises(ArrayTypeError):
        noise_share(np.ones(4), **BOUNDS)
    with pytest.raises(ArrayTypeError):
        mean_of_total(np.ones(4, np.float32), clients=1, steps_per_unit=1.0, rotation_seed=SEED)  # type: ignore[arg-type]


VARIANCES = [Fraction(1, 128), Fraction(1, 100), Fraction(7, 9), Fraction(25), Fraction(1000, 3)]


def magnitudes(table: NoiseTable) -> list[Fraction]:
    thresholds = [int(high) << 64 | int(low) for high, low in zip(table.high, table.low, strict=True)]
    return AliasTable(thresholds, table.others.tolist()).probabilities()


def true_magnitudes(distribution: str, variance: Fraction, most: int) -> list[Any]:
    """The probabilities of 0 to ``most``, of both signs, in 60 digits."""
    v = mpmath.mpf(variance.numerator) / variance.denominator
    if distribution == "skellam":
        one_sided = [mpmath.exp(-v) * mpmath.besseli(m, v) for m in range(most + 1)]
    else:
        # The sum over all integers is Jacobi's theta function.
        whole = mpmath.jtheta(3, 0, mpmath.exp(-1 / (2 * v)))
        one_sided = [mpmath.exp(-(mpmath.mpf(m) ** 2) / (2 * v)) / whole for m in range(most + 1)]
    return [one_sided[0], *(2 * p for p in one_sided[1:])]


@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("distribution", ["discrete-gaussian", "skellam"])
def test_a_table_is_as_near_as_it_says(distribution: Any, variance: Fraction) -> None:
    table = NoiseTable(distribution, variance)
    found = magnitudes(table)
    assert sum(found) == 1
    assert not any(found[table.most + 1 :])
    with mpmath.workdps(60):
        expected = true_magnitudes(distribution, variance, table.most)
        differences = [
            mpmath.mpf(p.numerator) / p.denominator - q for p, q in zip(found, expected, strict=False)
        ]
        distance = (mpmath.fsum(map(abs, differences)) + 1 - mpmath.fsum(expected)) / 2
        # Not below what it is, and not far above: cutting one value more of the tail would be too much.
        assert distance <= mpmath.mpf(2) ** table.log2_distance <= mpmath.mpf(2) ** -110
        assert mpmath.mpf(2) ** table.log2_distance <= 16 * distance + mpmath.mpf(2) ** -127


@pytest.mark.parametrize(
    ("distribution", "variance"), [("discrete-gaussian", 2**20), ("skellam", 2**20), ("skellam", 2**28)]
)
def test_wide_tables_have_the_right_moments(distribution: Any, variance: int) -> None:
    """At deviations where every probability would take another library too long."""
    table = NoiseTable(distribution, Fraction(variance))
    own = table.high / 2.0**64 / table.high.size
    weights = own.copy()
    np.add.at(weights, table.others, 1 / table.high.size - own)
    squares = np.arange(weights.size, dtype=np.float64) ** 2
    assert weights @ squares == pytest.approx(variance, rel=1e-9)
    assert weights @ squares**2 == pytest.approx(
        3 * variance**2 + (distribution == "skellam") * variance, rel=1e-9
    )
    assert table.log2_distance < -120


def test_weights_that_are_too_inexact_cut_nothing() -> None:
    assert _tail(([800, 400, 100], 10), 1) == Fraction(2 * 110 * 390, 280 * (1600 - 30))
    assert _tail(([800, 400, 100], 150), 1) == 1


def test_a_table_of_the_same_distribution_is_made_once() -> None:
    table = noise_table("skellam", Fraction(5))
    assert noise_table("skellam", Fraction(5)) is table
    with pytest.raises(ValueError, match="read-only"):
        table.high[0] = 0
    assert noise_table("skellam", Fraction(5, 2)).most == 34


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction(1, 129), Fraction(2**28 + 1), 3.0])
def test_variances_out_of_bounds_are_refused(variance: Any) -> None:
    with pytest.raises(ParameterError, match="variance"):
        noise_table("discrete-gaussian", variance)
