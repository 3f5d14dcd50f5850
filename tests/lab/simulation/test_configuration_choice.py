"""Alt-FL's choice of configurations, and the figures that it looks at."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.audit.attack import AuditResult, Cell
from shieldfl.lab.simulation.compared_runs import ComparedRuns
from shieldfl.lab.simulation.papers import (
    COSTS,
    SHARES,
    MeasuredConfiguration,
    Threshold,
    choose_configurations,
    cost_thresholds,
    worst_success_rate,
)
from shieldfl.lab.simulation.results import Interruption, MethodResult, RoundRecord, RunResult

ATTACKS = "attack_success_rate"
TABLE_III = [Threshold(ATTACKS, 0.005)]
TABLE_IV = [Threshold(ATTACKS, 0.01), Threshold("accuracy", 0.04), *cost_thresholds(0.5)]
TABLE_V = [Threshold("accuracy", 0.1), Threshold(ATTACKS, 0.005), *cost_thresholds(0.5)]


def measured(name, *figures):
    """Return a configuration of figures in the order of the paper's text; those that are not given are missing."""
    return MeasuredConfiguration(name=name, **dict(zip((*SHARES, *COSTS), figures, strict=False)))


# Of the shape of the paper's levels with weak noise: encryption defends, noise learns worst and sends least.
CONFIGURATIONS = [
    measured("HE", 0.0, 0.60, 240e6, 5000, 35),
    measured("MP 0.2", 0.004, 0.58, 120e6, 6000, 40),
    measured("PI 1/2", 0.008, 0.57, 130e6, 5500, 45),
    measured("SI/DP", 0.003, 0.51, 20e6, 4000, 60),
    measured("SI/HE", 0.010, 0.45, 110e6, 3000, 30),
    measured("DP", 0.300, 0.56, 20e6, 9000, 80),
]


def chosen(configurations, *thresholds):
    return choose_configurations(configurations, thresholds).chosen


def test_table_iv_prefers_privacy_then_accuracy_then_costs():
    choice = choose_configurations(CONFIGURATIONS, TABLE_IV)
    assert [step.left for step in choice.steps] == [
        ("HE", "MP 0.2", "PI 1/2", "SI/DP", "SI/HE"),
        ("HE", "MP 0.2", "PI 1/2"),
        ("MP 0.2", "PI 1/2"),
        ("MP 0.2", "PI 1/2"),
        ("MP 0.2", "PI 1/2"),
    ]
    # The least cost is that of what is left: DP, SI/DP and SI/HE sent less.
    assert [step.best for step in choice.steps] == [0.0, 0.60, 120e6, 5500, 40]
    assert [(step.figure, *step.fallen) for step in choice.steps[:3]] == [
        (ATTACKS, "DP"),
        ("accuracy", "SI/DP", "SI/HE"),
        ("bytes_to_convergence", "HE"),
    ]


def test_tables_iii_and_v_take_what_the_paper_asks_for_first():
    assert chosen(CONFIGURATIONS, *TABLE_III) == ("HE", "MP 0.2", "SI/DP")
    assert chosen(CONFIGURATIONS, *TABLE_V) == ("SI/DP",)
    for thresholds in (TABLE_III, TABLE_IV, TABLE_V):
        assert chosen(CONFIGURATIONS[5:], *thresholds) == ("DP",)


def test_what_did_not_converge_meets_no_threshold_of_a_cost():
    endless = measured("endless", 0.0, 0.61)
    choice = choose_configurations([*CONFIGURATIONS, endless], TABLE_IV)
    assert "endless" in choice.steps[1].left
    assert "endless" not in choice.chosen
    assert "endless (–)" in str(choice.steps[2])
    assert chosen([*CONFIGURATIONS, endless], *TABLE_III) == ("HE", "MP 0.2", "SI/DP", "endless")
    none = choose_configurations([measured("a", 0.0, 0.5), measured("b", 0.0, 0.5)], TABLE_IV)
    assert none.chosen == ()
    assert str(none).endswith("chosen: none")


def test_a_share_that_was_not_measured_is_asked_for_by_those_that_are_left():
    configurations = [measured("attacked", 0.1, 0.5), measured("not attacked", None, 0.5)]
    with pytest.raises(ParameterError, match="attack_success_rate needs that of not attacked: measure it"):
        choose_configurations(configurations, TABLE_III)
    worse = [configurations[0], measured("not attacked", None, 0.3)]
    assert chosen(worse, Threshold("accuracy", 0.1), *TABLE_III) == ("attacked",)
    with pytest.raises(ParameterError, match="accuracy needs that of a, b"):
        choose_configurations([measured("a"), measured("b")], [Threshold("accuracy", 0.1)])


def test_the_choice_says_why():
    lines = str(choose_configurations(CONFIGURATIONS, TABLE_IV)).splitlines()
    assert lines[0] == "attack_success_rate: at most 0.01, the best is 0; 5 left; out: DP (0.3)"
    assert lines[1] == "accuracy: at least 0.56, the best is 0.6; 3 left; out: SI/DP (0.51), SI/HE (0.45)"
    assert lines[2].endswith("at most 180 MB, the best is 120 MB; 2 left; out: HE (240 MB)")
    assert lines[-1] == "chosen: MP 0.2, PI 1/2"


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: choose_configurations([], TABLE_III), "at least one configuration"),
        (lambda: choose_configurations(CONFIGURATIONS, []), "at least one threshold"),
        (lambda: choose_configurations([*CONFIGURATIONS, measured("DP", 0.5)], TABLE_III), "called alike"),
        (lambda: Threshold("accuracy", -0.001), "tolerance must be a number, at least 0"),
        (lambda: cost_thresholds(math.inf), "tolerance must be a number, at least 0"),
        (lambda: Threshold("asr", 0.1), "one of attack_success_rate, accuracy, by"),
        (lambda: measured("mine", None, 56.0), "accuracy must be a number, at least 0 and at most 1"),
        (lambda: measured("mine", -0.1), "attack_success_rate must be"),
        (lambda: measured("mine", 0.1, 0.5, math.inf), "bytes_to_convergence must be"),
        (lambda: measured("mine", 0.1, 0.5, 1.0, 1.0, -1), "converged_round must be"),
    ],
)
def test_what_is_no_figure_threshold_or_choice_is_refused(make, says):
    with pytest.raises(ParameterError, match=says):
        make()


def pair_by_pair(configurations, thresholds):
    """Drop what some other one that is left beats by more than is allowed, in exact arithmetic of decimals."""
    left = list(configurations)
    for threshold in thresholds:
        tolerance = Fraction(str(threshold.tolerance))
        exact = {
            one.name: Fraction(str(value))
            for one in left
            if not math.isnan(value := one.figure(threshold.figure))
        }

        def is_beaten(own, other, threshold=threshold, tolerance=tolerance):
            if threshold.figure == "accuracy":
                return other - own > tolerance
            if threshold.figure == ATTACKS:
                return own - other > tolerance
            return own > other + tolerance * other

        kept = {
            name for name, own in exact.items() if not any(is_beaten(own, other) for other in exact.values())
        }
        left = [one for one in left if one.name in kept]
    return tuple(one.name for one in left)


shares = st.integers(0, 40).map(lambda k: k / 200)
costs = st.none() | st.integers(0, 60).map(float)
tolerances = st.sampled_from([0.0, 0.005, 0.01, 0.04, 0.1, 0.2, 0.5])


@given(
    st.lists(st.tuples(shares, shares, costs, costs, costs), min_size=1, max_size=12),
    st.lists(st.builds(Threshold, st.sampled_from([*SHARES, *COSTS]), tolerances), min_size=1, max_size=6),
)
def test_equals_the_reading_pair_by_pair(figures, thresholds):
    configurations = [measured(str(number), *one) for number, one in enumerate(figures)]
    choice = choose_configurations(configurations, thresholds)
    assert choice.chosen == pair_by_pair(configurations, thresholds)
    fallen = [name for step in choice.steps for name in step.fallen]
    assert sorted([*choice.chosen, *fallen]) == sorted(one.name for one in configurations)
    for number, step in enumerate(choice.steps, start=1):
        assert step.left == pair_by_pair(configurations, thresholds[:number])
        assert step.left or any(math.isnan(one.best) for one in choice.steps[:number])


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


def test_one_run_that_did_not_converge_is_the_largest_that_is_left_out():
    runs = [run_of(flat(0.5), seed) for seed in range(3)]
    one = MeasuredConfiguration.of_runs("mine", stored(*runs, run_of(STEADY, 3)), "fedavg")
    assert one.converged_round == 20
    two = MeasuredConfiguration.of_runs("mine", stored(*runs, run_of(STEADY, 3), run_of(STEADY, 4)), "fedavg")
    assert (two.converged_round, two.bytes_to_convergence) == (None, None)
    assert two.accuracy == pytest.approx((0.5 + 0.5 + 0.58) / 3)
    cut = run_of([0.5] * 25, 3, interrupted=Interruption("fedavg", 26, (), "it diverged"))
    assert MeasuredConfiguration.of_runs("mine", stored(*runs, cut), "fedavg").accuracy is None


def audit(*cells):
    result = AuditResult({}, {}, "data", "model", [Cell(*one[:4], **dict(one[4:])) for one in cells])
    return json.loads(json.dumps(result.to_json(), allow_nan=False))


def attacked(method, attack, figure, measured_by="IIP", party="aggregator"):
    return (method, attack, party, "attacked", ("measured_by", measured_by), ("figure", figure), ("tries", 8))


UNDEFENDED = [attacked("fedavg", "dlg", 0.9), attacked("fedavg", "inverting", 0.6)]


def test_the_strongest_attack_counts_and_what_was_not_received_is_nothing():
    more = [attacked("fedavg", "ilrg", 1.0, "LnAcc"), attacked("full-he", "dlg", 0.3, party="client")]
    more += [("full-he", one, "aggregator", "nothing received") for one in ("dlg", "inverting")]
    more += [attacked("dp-sgd", "dlg", 0.1), ("dp-sgd", "inverting", "aggregator", "does not apply")]
    more += [attacked("dp-fedavg", "dlg", 0.1), ("dp-fedavg", "inverting", "aggregator", "not attacked")]
    facts = audit(*UNDEFENDED, *more)
    assert worst_success_rate(facts, "fedavg") == 0.9
    assert worst_success_rate(facts, "fedavg", measured_by="LnAcc") == 1.0
    assert worst_success_rate(facts, "full-he") == 0.0
    assert worst_success_rate(facts, "full-he", "client") == 0.3
    assert worst_success_rate(facts, "dp-sgd") == 0.1
    assert worst_success_rate(facts, "dp-fedavg") is None
    assert worst_success_rate(audit(*UNDEFENDED, more[5]), "dp-sgd") is None


def test_what_the_audit_does_not_have_is_refused():
    facts = audit(*UNDEFENDED)
    with pytest.raises(ParameterError, match="nothing of dp-sgd for aggregator: it has fedavg for aggreg"):
        worst_success_rate(facts, "dp-sgd")
    with pytest.raises(ParameterError, match="measured by LnAcc"):
        worst_success_rate(facts, "fedavg", measured_by="LnAcc")
    for other in ({}, {"cells": [{}]}, {"cells": None}, run_of(flat(0.5)).to_json()):
        with pytest.raises(DataError, match="no audit"):
            worst_success_rate(other, "fedavg")


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
