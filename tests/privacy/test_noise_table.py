"""Tables of discrete noise against the distributions themselves, by another library's functions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from reference.distributed_noise import AliasTable
from shieldfl.errors import ParameterError
from shieldfl.privacy.noise_share import NoiseTable, _tail, _Weights

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
    assert _tail(_Weights([800, 400, 100], 10), 1) == Fraction(2 * 110 * 390, 280 * (1600 - 30))
    assert _tail(_Weights([800, 400, 100], 150), 1) == 1


def test_a_table_of_the_same_distribution_is_made_once() -> None:
    table = NoiseTable.skellam(Fraction(5))
    assert NoiseTable.skellam(Fraction(5)) is table
    with pytest.raises(ValueError, match="read-only"):
        table.high[0] = 0
    assert NoiseTable.skellam(Fraction(5, 2)).most == 34


@pytest.mark.parametrize("variance", [Fraction(0), Fraction(-1), Fraction(1, 129), Fraction(2**28 + 1), 3.0])
def test_variances_out_of_bounds_are_refused(variance: Any) -> None:
    with pytest.raises(ParameterError, match="variance"):
        NoiseTable.discrete_gaussian(variance)
