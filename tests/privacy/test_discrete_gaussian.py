"""The discrete mechanism: on the grid, within the norm, with the stated variance; and the core's known answers."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privacy.discrete_gaussian_twin import discrete_gaussian, random_pieces
from reference.ckks import test_seed as insecure_seed
from shieldfl.errors import ArrayTypeError, ParameterError, RangeError
from shieldfl.privacy.noise import discrete_gaussian_noise, grid_variance

# A standard score beyond 6 comes once in 5e8 honest runs.
SCORE_LIMIT = 6.0


@pytest.mark.parametrize(
    ("variance", "expected"),
    [
        (
            Fraction(10, 3),
            [-1, 3, 0, -1, 3, 1, 1, -1, -4, 5, -1, 2, -1, -1, -1, -1, 2, -1, -1, 1, 1, -3, 0, -2],
        ),
        (Fraction(1, 5), [0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0]),
        (Fraction(2**44 + 1), [1620176, 6178287, 5410392, 6126491, -2911620, -6126375]),
        (Fraction(2**48, 2**24 - 1), [-2353, 4726, 2974, 7250, -553, 4594]),
    ],
)
def test_the_twin_gives_the_known_answers_of_the_core(variance: Fraction, expected: list[int]) -> None:
    """The same numbers as in cpp/tests/noise/test_discrete_gaussian.cpp."""
    pieces = random_pieces(insecure_seed(90, 0), 5)
    assert [discrete_gaussian(variance, pieces) for _ in expected] == expected


@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=30),
    st.floats(1e-3, 1e6),
    st.integers(14, 24),
)
def test_without_noise_the_exact_norm_never_exceeds_the_bound(
    values: list[float], norm: float, fraction_bits: int
) -> None:
    # At 2^-12 steps of deviation a draw differs from 0 once in exp(2^23).
    deviation = 2.0 ** -(12 + fraction_bits)
    vector = np.array(values, dtype=np.float32)
    rounded, original, _ = discrete_gaussian_noise(vector, norm, deviation, fraction_bits)
    assert sum(Fraction(float(value)) ** 2 for value in rounded) <= Fraction(norm) ** 2
    assert original == pytest.approx(math.sqrt(math.fsum(float(value) ** 2 for value in vector)), rel=1e-12)


def test_noise_is_on_the_grid_with_the_stated_moments() -> None:
    draws = 200_000
    vector = np.full(draws, 0.125, dtype=np.float32)
    noised, norm, was_clipped = discrete_gaussian_noise(vector, 1e3, 2.0, 20)
    assert noised.dtype == np.float64
    assert not was_clipped
    assert norm == pytest.approx(0.125 * math.sqrt(draws))
    np.testing.assert_array_equal(noised * 2**20, np.rint(noised * 2**20))
    scaled = (noised - 0.125) / 2.0
    assert abs(scaled.mean()) * math.sqrt(draws) < SCORE_LIMIT
    assert abs((scaled**2).mean() - 1.0) * math.sqrt(draws / 2) < SCORE_LIMIT
    assert abs((scaled**4).mean() - 3.0) * math.sqrt(draws / 96) < SCORE_LIMIT


def test_two_calls_draw_different_noise() -> None:
    vector = np.zeros(1000, dtype=np.float32)
    first, second = (discrete_gaussian_noise(vector, 1.0, 1.0, 20, threads=2)[0] for _ in range(2))
    assert np.count_nonzero(first == second) < 10


def test_a_long_vector_is_clipped_and_the_input_kept() -> None:
    vector = np.array([3.0, 0.0, -4.0], dtype=np.float32)
    rounded, norm, was_clipped = discrete_gaussian_noise(vector, 2.5, 2.0**-40, 30)
    np.testing.assert_allclose(rounded, [1.5, 0.0, -2.0], rtol=1e-6)
    assert (norm, was_clipped) == (5.0, True)
    np.testing.assert_array_equal(vector, [3.0, 0.0, -4.0])
    assert discrete_gaussian_noise(vector[:0], 1.0, 1.0, 10)[0].shape == (0,)


@given(st.floats(2.0**-11, 2.0**23), st.integers(0, 40))
def test_the_variance_is_never_less_than_asked_for(steps: float, fraction_bits: int) -> None:
    deviation = math.ldexp(steps, -fraction_bits)
    asked = (Fraction(deviation) * 2**fraction_bits) ** 2
    variance = grid_variance(deviation, fraction_bits)
    assert asked <= variance <= asked + Fraction(1, 2**24) * max(1, 2 * asked)
    assert variance.numerator <= 2**48
    assert variance.denominator <= 2**24


@pytest.mark.parametrize(
    ("norm", "deviation", "fraction_bits", "message"),
    [
        (0.0, 1.0, 10, "clipping norm"),
        (math.nan, 1.0, 10, "clipping norm"),
        (1.0, 0.0, 10, "standard deviation"),
        (1.0, math.inf, 10, "standard deviation"),
        (1.0, 2.0**-23, 10, "fraction_bits accordingly"),
        (1.0, 2.0**15, 10, "fraction_bits accordingly"),
        (1.0, 1.0, -1, "fraction_bits"),
        (1.0, 1.0, 151, "at most 150"),
        (2.0**41, 1.0, 10, "fewer fraction bits"),
        (0.01, 1.0, 5, "more fraction bits"),
    ],
)
def test_numbers_out_of_bounds_are_refused(
    norm: float, deviation: float, fraction_bits: int, message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        discrete_gaussian_noise(np.ones(4, dtype=np.float32), norm, deviation, fraction_bits)


def test_bad_vectors_are_refused() -> None:
    with pytest.raises(RangeError, match="position 1"):
        discrete_gaussian_noise(np.array([1.0, np.nan], dtype=np.float32), 1.0, 1.0, 10)
    with pytest.raises(ArrayTypeError):
        discrete_gaussian_noise(np.ones(2), 1.0, 1.0, 10)  # type: ignore[arg-type]
