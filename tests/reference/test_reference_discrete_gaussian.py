"""The discrete Gaussian's readable twin against the answers that the core's own tests know."""

from __future__ import annotations

from fractions import Fraction

import pytest

from reference.ckks import test_seed as insecure_seed
from reference.discrete_gaussian import discrete_gaussian, random_pieces


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
def test_the_twin_gives_the_known_answers_of_the_core(variance, expected):
    """The same numbers as in cpp/tests/noise/test_discrete_gaussian.cpp."""
    pieces = random_pieces(insecure_seed(90, 0), 5)
    assert [discrete_gaussian(variance, pieces) for _ in expected] == expected
