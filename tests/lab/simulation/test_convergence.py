"""Alt-FL's convergence rule against a plain reading of it, and at its edges."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.simulation.test_stored_runs import run_of
from shieldfl.errors import ParameterError
from shieldfl.lab.simulation.compared_runs import FIGURES
from shieldfl.lab.simulation.results import averaging_window, converged_at
from shieldfl.methods.dp_sgd_rounds import KindsOfRounds, RoundKind


def plain_reading(accuracies: list[float], window: int) -> int | None:
    """Averages first, then gains, then the first ten small ones in a row; in exact arithmetic."""
    exact = [Fraction(accuracy) for accuracy in accuracies]
    averages = [sum(exact[end - window : end]) / window for end in range(window, len(exact) + 1)]
    small = [after - before < Fraction(1, 1000) for before, after in pairwise(averages)]
    for last in range(10, len(small) + 1):
        if all(small[last - 10 : last]):
            return window + last
    return None


# Multiples of 1/512 are exact in floats, and no gain is exactly 0.001.
@given(
    st.sampled_from([0, 250]).flatmap(
        lambda low: st.lists(st.integers(low, low + 6 if low else 512).map(lambda k: k / 512), max_size=60)
    ),
    st.integers(1, 12),
)
def test_equals_the_plain_reading(accuracies: list[float], window: int) -> None:
    assert converged_at(accuracies, window) == plain_reading(accuracies, window)


@pytest.mark.parametrize("ratio", ["1/4", "2/5", "1/2", "3/5", "3/4"])
def test_the_window_holds_whole_periods_so_alternation_itself_is_no_gain(ratio: str) -> None:
    noised = RoundKind(noises=True)
    rounds = KindsOfRounds(noised, RoundKind(), ratio)
    window = averaging_window(rounds.ratio)
    assert window == (8 if ratio in {"1/4", "3/4"} else 10)
    assert averaging_window(None) == averaging_window(Fraction(0)) == 10
    assert window % rounds.ratio.denominator == 0
    swinging = [0.6 if rounds.kind(t) == noised else 0.4 for t in range(1, 60)]
    assert converged_at(swinging, window) == window + 10


@pytest.mark.parametrize(
    ("accuracies", "window"),
    [([0.5], 0), ([0.5], -1), ([math.nan], 10), ([0.5, 1.5], 10), ([-0.1], 10), ([math.inf], 10)],
)
def test_bad_input_is_refused(accuracies: list[float], window: int) -> None:
    with pytest.raises(ParameterError):
        converged_at(accuracies, window)


def test_costs_until_convergence_are_those_of_the_rounds_until_then() -> None:
    (result,) = run_of([0.5] * 30).methods
    figures = {name: FIGURES[name].read(result) for name in FIGURES if "converge" in name}
    assert figures == {
        "converged_round": 20,
        "bytes_to_convergence": 20 * 10,
        "seconds_to_convergence": 20,
    }


def test_a_run_that_has_not_converged_has_no_costs_until_then() -> None:
    for accuracies in ([0.5] * 19, [t / 40 for t in range(1, 31)], [math.nan] * 30):
        (result,) = run_of(accuracies).methods
        assert all(math.isnan(FIGURES[name].read(result)) for name in FIGURES if "converge" in name)
