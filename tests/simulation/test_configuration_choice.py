"""Alt-FL's choice of configurations: each threshold by hand, their order, and all against a reading pair by pair."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shieldfl.errors import ParameterError
from shieldfl.simulation.configuration_choice import Threshold, choose_configurations, cost_thresholds
from shieldfl.simulation.measured_configuration import COSTS, SHARES, MeasuredConfiguration

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
    assert choice.fallen["SI/HE"].limit == 0.005
    assert choice.fallen["SI/HE"].value == 0.01
    assert choice.fallen["SI/HE"].threshold is TABLE_III[0]


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
    assert {name: one.threshold.figure for name, one in choice.fallen.items()} == {
        "DP": ATTACKS,
        "SI/DP": "accuracy",
        "SI/HE": "accuracy",
        "HE": "bytes_to_convergence",
    }


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
    assert math.isnan(choice.fallen["endless"].value)
    assert str(choice.fallen["endless"]) == "endless: no bytes_to_convergence, since it did not converge"
    assert chosen([*CONFIGURATIONS, endless], *TABLE_III) == ("HE", "MP 0.2", "SI/DP", "endless")


def test_nothing_is_left_where_none_converged():
    choice = choose_configurations([measured("a", 0.0, 0.5), measured("b", 0.0, 0.5)], TABLE_IV)
    assert choice.chosen == ()
    assert choice.fallen.keys() == {"a", "b"}
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
    assert sorted([*choice.chosen, *choice.fallen]) == sorted(one.name for one in configurations)
    for number, step in enumerate(choice.steps, start=1):
        assert step.left == pair_by_pair(configurations, thresholds[:number])
        assert step.left or any(math.isnan(one.best) for one in choice.steps[:number])
