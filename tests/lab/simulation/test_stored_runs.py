"""Runs that come back from a file, figures over their seeds, and Alt-FL's convergence rule at its edges."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.simulation.compared_runs import FIGURES, ComparedRuns
from shieldfl.lab.simulation.results import (
    Interruption,
    MethodResult,
    RoundRecord,
    RunResult,
    averaging_window,
    converged_at,
)
from shieldfl.methods.dp_sgd_rounds import KindsOfRounds, RoundKind

ROUNDS = 30
NOTHING = dict.fromkeys(("epsilon", "epsilon_of_noise", "epsilon_if_participants_true"), math.inf)


def run_of(accuracies, seed=0, rounds=ROUNDS, interrupted=None):
    """Return a run of one method of these accuracies, of 10 bytes a round and client and a second a round."""
    records = [
        RoundRecord(t, 3, 0, math.nan, one, one, {"clear": 1.0}, {}, 6.0, 4.0, seconds=1.0, **NOTHING)
        for t, one in enumerate(accuracies, start=1)
    ]
    config = {"rounds": rounds, "seed": seed}
    method = MethodResult("fedavg", {"eta": None}, 10, math.nan, records, seconds=float(len(records)))
    return RunResult("data", "model", config, {}, 10, [method], interrupted=interrupted)


def stored(*runs):
    """Return the runs as they come back from a file."""
    written = ComparedRuns(tuple(run.config["seed"] for run in runs), runs).to_json()
    return ComparedRuns.from_json(json.loads(json.dumps(written, allow_nan=False)))


def flat(level, changes=()):
    return [*changes, *[level] * (ROUNDS - len(changes))]


STEADY = [t / 50 for t in range(ROUNDS)]
"""Gains all the time, and does not converge."""


def test_means_without_extremes_take_a_run_that_did_not_converge_for_the_largest():
    runs = [run_of(flat(level, [level + 0.05]), seed) for seed, level in enumerate((0.5, 0.1, 0.4))]
    found = stored(*runs, run_of(STEADY, 3))
    assert found.figure("fedavg", "best_accuracy").mean_without_extremes == pytest.approx(0.5)
    assert found.figure("fedavg", "converged_round").mean_without_extremes == 20
    cut = run_of([0.5] * 25, 4, interrupted=Interruption("fedavg", 26, (), "it diverged"))
    two = stored(*runs, run_of(STEADY, 3), cut).figure("fedavg", "bytes_to_convergence")
    assert math.isnan(two.mean_without_extremes)
    with pytest.raises(ParameterError, match="at least three seeds"):
        _ = stored(*runs[:2]).figure("fedavg", "converged_round").mean_without_extremes


def test_runs_come_back_as_they_were_written():
    """Undefined and infinite numbers, settings that are None, a run that an error ended."""
    cut = run_of([0.5] * 25, 1, interrupted=Interruption("fedavg", 26, ("dp-sgd",), "it diverged"))
    runs = ComparedRuns((0, 1), (run_of(flat(0.5)), cut))
    back = stored(*runs.runs)
    assert back.to_json() == runs.to_json()
    assert str(back.runs[1].interrupted) == str(cut.interrupted)
    assert back.runs[0].methods[0].last.epsilon == math.inf
    assert math.isnan(back.runs[0].methods[0].last.loss)
    one = json.loads(json.dumps(run_of(flat(0.5), seed=7).to_json() | {"paper": []}))
    assert ComparedRuns.from_json(one).seeds == (7,)


@pytest.mark.parametrize(
    "facts", [{}, {"runs": []}, {"runs": [{}]}, {"runs": 3}, [], {"seeds": [0, 1], "runs": [{}]}]
)
def test_other_files_are_no_runs(facts):
    with pytest.raises(DataError, match="no run"):
        ComparedRuns.from_json(facts)


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
