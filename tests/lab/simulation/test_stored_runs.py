"""Runs that come back from a file, and figures over their seeds."""

from __future__ import annotations

import json
import math

import pytest

from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.simulation.compared_runs import ComparedRuns
from shieldfl.lab.simulation.results import Interruption, MethodResult, RoundRecord, RunResult

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
