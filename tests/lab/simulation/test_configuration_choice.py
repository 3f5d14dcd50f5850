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
from shieldfl.lab.simulation.results import MethodResult, RoundRecord
from shieldfl.lab.simulation.run_result import Interruption, RunResult

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


def test_table_iii_takes_what_is_near_the_least_success_rate():
    choice = choose_configurations(CONFIGURATIONS, TABLE_III)
    assert choice.chosen == ("HE", "MP 0.2", "SI/DP")
    assert [step.limit for step in choice.steps] == [0.005]
    assert choice.steps[0].fallen["SI/HE"] == 0.01


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


def test_table_v_asks_for_accuracy_first():
    choice = choose_configurations(CONFIGURATIONS, TABLE_V)
    assert [step.left for step in choice.steps] == [
        ("HE", "MP 0.2", "PI 1/2", "SI/DP", "DP"),
        ("HE", "MP 0.2", "SI/DP"),
        ("SI/DP",),
        ("SI/DP",),
        ("SI/DP",),
    ]


def test_the_order_of_thresholds_decides():
    """Each takes the other's best away: what is most accurate is most attacked."""
    pair = [measured("safe", 0.0, 0.4), measured("accurate", 0.5, 0.6)]
    thresholds = [Threshold(ATTACKS, 0.1), Threshold("accuracy", 0.1)]
    assert chosen(pair, *thresholds) == ("safe",)
    assert chosen(pair, *reversed(thresholds)) == ("accurate",)


def test_costs_are_looked_at_in_the_papers_order():
    assert [one.figure for one in cost_thresholds(0.5)] == [
        "bytes_to_convergence",
        "seconds_to_convergence",
        "converged_round",
    ]
    pair = [measured("small", 0, 1, 10, 100, 10), measured("quick", 0, 1, 20, 50, 10)]
    assert chosen(pair, *cost_thresholds(0.5)) == ("small",)
    assert chosen(pair, *reversed(cost_thresholds(0.5))) == ("quick",)


@pytest.mark.parametrize(
    ("figure", "figures", "tolerance"),
    [
        # None of these limits is the decimal that it stands for, once it is worked out in binary.
        ("accuracy", (0.8, 0.7), 0.1),
        (ATTACKS, (0.1, 0.3), 0.2),
        ("bytes_to_convergence", (3.0, 3.3), 0.1),
        (ATTACKS, (0.0, 0.005), 0.005),
    ],
)
def test_what_equals_a_limit_meets_it(figure, figures, tolerance):
    pair = [MeasuredConfiguration(name=str(one), **{figure: one}) for one in figures]
    assert len(chosen(pair, Threshold(figure, tolerance))) == 2
    assert len(chosen(pair, Threshold(figure, 0.999 * tolerance))) == 1


def test_ties_stay_together_and_in_the_order_given():
    tied = [measured(name, 0.1, 0.5, 7, 7, 7) for name in "cab"]
    for thresholds in (TABLE_III, TABLE_IV, TABLE_V, [Threshold("accuracy", 0.0)]):
        assert chosen(tied, *thresholds) == ("c", "a", "b")


def test_one_configuration_is_always_the_best():
    for thresholds in (TABLE_III, TABLE_IV, TABLE_V):
        assert chosen(CONFIGURATIONS[5:], *thresholds) == ("DP",)


@pytest.mark.parametrize("none", [None, math.nan])
def test_what_did_not_converge_meets_no_threshold_of_a_cost(none):
    endless = measured("endless", 0.0, 0.61, none, none, none)
    choice = choose_configurations([*CONFIGURATIONS, endless], TABLE_IV)
    assert "endless" in choice.steps[1].left
    assert "endless" not in choice.chosen
    assert choice.steps[2].why("endless") == "endless: no bytes_to_convergence, since it did not converge"
    assert chosen([*CONFIGURATIONS, endless], *TABLE_III) == ("HE", "MP 0.2", "SI/DP", "endless")


def test_nothing_is_left_where_none_converged():
    choice = choose_configurations([measured("a", 0.0, 0.5), measured("b", 0.0, 0.5)], TABLE_IV)
    assert choice.chosen == ()
    assert choice.steps[2].fallen.keys() == {"a", "b"}
    assert all(math.isnan(step.best) and math.isnan(step.limit) for step in choice.steps[2:])
    assert str(choice).endswith("chosen: none")


@pytest.mark.parametrize("none", [None, math.nan])
def test_a_share_that_was_not_measured_is_asked_for_by_those_that_are_left(none):
    configurations = [measured("attacked", 0.1, 0.5), measured("not attacked", none, 0.5)]
    with pytest.raises(ParameterError, match="attack_success_rate needs that of not attacked: measure it"):
        choose_configurations(configurations, TABLE_III)
    worse = [configurations[0], measured("not attacked", none, 0.3)]
    assert chosen(worse, Threshold("accuracy", 0.1), *TABLE_III) == ("attacked",)
    with pytest.raises(ParameterError, match="accuracy needs that of a, b"):
        choose_configurations([measured("a"), measured("b")], [Threshold("accuracy", 0.1)])


def test_the_choice_says_why():
    lines = str(choose_configurations(CONFIGURATIONS, TABLE_IV)).splitlines()
    assert lines[0] == "attack_success_rate: at most 0.01, the best is 0; 5 left"
    assert lines[1] == "  DP: attack_success_rate 0.3 is above 0.01"
    assert lines[2] == "accuracy: at least 0.56, the best is 0.6; 3 left"
    assert "  SI/DP: accuracy 0.51 is below 0.56" in lines
    assert "  HE: bytes_to_convergence 240 MB is above 180 MB" in lines
    assert lines[-1] == "chosen: MP 0.2, PI 1/2"


def test_nothing_to_choose_from_or_by_is_refused():
    with pytest.raises(ParameterError, match="give at least one configuration"):
        choose_configurations([], TABLE_III)
    with pytest.raises(ParameterError, match="give at least one threshold"):
        choose_configurations(CONFIGURATIONS, [])
    with pytest.raises(ParameterError, match="two configurations are called 'DP'"):
        choose_configurations([*CONFIGURATIONS, measured("DP", 0.5)], TABLE_III)


@pytest.mark.parametrize("tolerance", [-0.001, math.nan, math.inf])
def test_a_threshold_is_a_number_of_at_least_0(tolerance):
    with pytest.raises(ParameterError, match="threshold of accuracy must be a number of at least 0"):
        Threshold("accuracy", tolerance)
    with pytest.raises(ParameterError, match="at least 0"):
        cost_thresholds(tolerance)


def test_a_threshold_names_a_figure():
    with pytest.raises(
        ParameterError, match="no figure 'asr': choose from attack_success_rate, accuracy, by"
    ):
        Threshold("asr", 0.1)


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
    cut = run_of([0.5] * 25, 4, interrupted=Interruption("fedavg", 26, (), "it diverged"))
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
    cut = run_of([0.5] * 25, 1, interrupted=Interruption("fedavg", 26, ("dp-sgd",), "it diverged"))
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
