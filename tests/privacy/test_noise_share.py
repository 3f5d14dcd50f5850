"""Shares of distributed noise: tables against the distributions themselves, and totals that open to the mean."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

import shieldfl._core as _core
from privacy.moments import assert_normal
from reference.distributed_noise import AliasTable
from shieldfl.errors import ArrayTypeError, ParameterError, RangeError
from shieldfl.privacy.noise import NoiseTable, _tail, mean_of_total, noise_share, noise_table

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
