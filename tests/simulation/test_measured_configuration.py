"""Configurations of stored runs and audits: means over seeds, runs that did not converge, the strongest attack."""

from __future__ import annotations

import json
import math

import pytest

from shieldfl.audit.result import AuditResult, Cell
from shieldfl.errors import DataError, ParameterError
from shieldfl.simulation.compared_runs import ComparedRuns
from shieldfl.simulation.measured_configuration import MeasuredConfiguration, worst_success_rate
from shieldfl.simulation.results import MethodResult, RoundRecord
from shieldfl.simulation.run_result import Failure, RunResult

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


def test_figures_are_means_without_the_extremes():
    levels = (0.5, 0.1, 0.4, 0.9)
    runs = [run_of(flat(level, [level + 0.05]), seed) for seed, level in enumerate(levels)]
    one = MeasuredConfiguration.of_runs("mine", stored(*runs), "fedavg", 0.25)
    assert one.name == "mine"
    assert one.attack_success_rate == 0.25
    assert one.accuracy == pytest.approx(0.5)
    assert (one.bytes_to_convergence, one.seconds_to_convergence, one.converged_round) == (200, 20, 20)


def test_of_fewer_than_three_runs_they_are_means():
    one = MeasuredConfiguration.of_runs("mine", stored(run_of(flat(0.2)), run_of(flat(0.4), 1)), "fedavg")
    assert one.accuracy == pytest.approx(0.3)
    assert one.converged_round == 20
    assert one.attack_success_rate is None


def test_one_run_that_did_not_converge_is_the_largest_that_is_left_out():
    runs = [run_of(flat(0.5), seed) for seed in range(3)]
    one = MeasuredConfiguration.of_runs("mine", stored(*runs, run_of(STEADY, 3)), "fedavg")
    assert one.converged_round == 20
    two = MeasuredConfiguration.of_runs("mine", stored(*runs, run_of(STEADY, 3), run_of(STEADY, 4)), "fedavg")
    assert math.isnan(two.converged_round)
    assert math.isnan(two.bytes_to_convergence)
    assert two.accuracy == pytest.approx((0.5 + 0.5 + 0.58) / 3)
    pair = MeasuredConfiguration.of_runs("mine", stored(run_of(flat(0.5)), run_of(STEADY, 1)), "fedavg")
    assert math.isnan(pair.seconds_to_convergence)


def test_a_run_that_broke_down_has_no_accuracy_to_leave_out():
    runs = [run_of(flat(0.5), seed) for seed in range(4)]
    cut = run_of([0.5] * 25, 4, interrupted=Failure("fedavg", 26, (), "it diverged"))
    assert math.isnan(MeasuredConfiguration.of_runs("mine", stored(*runs, cut), "fedavg").accuracy)


def test_a_method_that_was_not_run_is_refused():
    with pytest.raises(ParameterError, match="no method 'dp-sgd' in this run: fedavg"):
        MeasuredConfiguration.of_runs("mine", stored(run_of(flat(0.5))), "dp-sgd")


@pytest.mark.parametrize(
    ("figures", "says"),
    [
        ({"accuracy": 56.0}, "mine: accuracy is a share from 0 to 1, not 56"),
        ({"attack_success_rate": -0.1}, "a share from 0 to 1"),
        ({"bytes_to_convergence": math.inf}, "at least 0, not inf; None where it did not converge"),
        ({"converged_round": -1}, "at least 0"),
    ],
)
def test_figures_that_are_none_are_refused(figures, says):
    with pytest.raises(ParameterError, match=says):
        MeasuredConfiguration(name="mine", **figures)


def audit(*cells):
    result = AuditResult({}, {}, "data", "model", [Cell(*one[:4], **dict(one[4:])) for one in cells])
    return json.loads(json.dumps(result.to_json(), allow_nan=False))


def attacked(method, attack, figure, measured_by="IIP", party="aggregator"):
    return (method, attack, party, "attacked", ("measured_by", measured_by), ("figure", figure), ("tries", 8))


UNDEFENDED = [attacked("fedavg", "dlg", 0.9), attacked("fedavg", "inverting", 0.6)]


def test_the_strongest_attack_on_images_counts():
    facts = audit(*UNDEFENDED, attacked("fedavg", "ilrg", 1.0, "LnAcc"))
    assert worst_success_rate(facts, "fedavg") == 0.9
    assert worst_success_rate(facts, "fedavg", measured_by="LnAcc") == 1.0


def test_who_received_nothing_has_no_image():
    hidden = [
        ("full-he", attack, "aggregator", "nothing received") for attack in ("dlg", "inverting", "ilrg")
    ]
    facts = audit(*UNDEFENDED, *hidden, attacked("full-he", "dlg", 0.3, party="client"))
    assert worst_success_rate(facts, "full-he") == 0.0
    assert worst_success_rate(facts, "full-he", "client") == 0.3


def test_attacks_that_do_not_apply_count_for_nothing_and_those_not_come_to_leave_it_open():
    half = [attacked("dp-sgd", "dlg", 0.1), ("dp-sgd", "inverting", "aggregator", "does not apply")]
    assert worst_success_rate(audit(*UNDEFENDED, *half), "dp-sgd") == 0.1
    assert worst_success_rate(audit(*UNDEFENDED, half[1]), "dp-sgd") is None
    open_one = ("dp-sgd", "inverting", "aggregator", "not attacked")
    assert worst_success_rate(audit(*UNDEFENDED, half[0], open_one), "dp-sgd") is None


def test_what_the_audit_does_not_have_is_refused():
    facts = audit(*UNDEFENDED)
    with pytest.raises(
        ParameterError, match="nothing of dp-sgd for aggregator: it has fedavg for aggregator"
    ):
        worst_success_rate(facts, "dp-sgd")
    with pytest.raises(ParameterError, match="measured by LnAcc"):
        worst_success_rate(facts, "fedavg", measured_by="LnAcc")
    for other in ({}, {"cells": [{}]}, {"cells": None}, run_of(flat(0.5)).to_json()):
        with pytest.raises(DataError, match="no audit"):
            worst_success_rate(other, "fedavg")


def test_runs_come_back_as_they_were_written():
    """Undefined and infinite numbers, settings that are None, a run that an error ended."""
    cut = run_of([0.5] * 25, 1, interrupted=Failure("fedavg", 26, ("dp-sgd",), "it diverged"))
    runs = ComparedRuns((0, 1), (run_of(flat(0.5)), cut))
    back = stored(*runs.runs)
    assert back.to_json() == runs.to_json()
    assert str(back.runs[1].interrupted) == str(cut.interrupted)
    assert back.runs[0].methods[0].last.epsilon == math.inf
    assert math.isnan(back.runs[0].methods[0].last.loss)
    assert back.runs[0].methods[0].settings == {"eta": None}


def test_the_file_of_one_run_has_its_seed():
    facts = json.loads(json.dumps(run_of(flat(0.5), seed=7).to_json() | {"paper": []}))
    assert ComparedRuns.from_json(facts).seeds == (7,)


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"runs": []},
        {"runs": [{}]},
        {"runs": 3},
        [],
        {"seeds": [0, 1], "runs": [run_of(flat(0.5)).to_json()]},
    ],
)
def test_other_files_are_no_runs(facts):
    with pytest.raises(DataError, match="no run"):
        ComparedRuns.from_json(facts)
