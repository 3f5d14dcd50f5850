"""Which masks a fleet encrypts: sensitivity, budgets, packing; and what steps cost by the paper."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from pathlib import Path
from statistics import NormalDist

import numpy as np
import pytest

from lab.fleet.fleets import RIGID, SCHEME, client, fleet_of
from methods.offered_method import class_of, offer
from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.cost_source import (
    PAPER_PARAMETERS,
    CostSource,
    EncryptionPlan,
    MaskSettings,
    SensitivityCurve,
    fleet_budgets,
    packed_fields,
    paper_costs,
    paper_fleet,
    plan_encryption,
    union_ratio,
)
from shieldfl.lab.fleet.fleet import load_fleet, parse_fleet
from shieldfl.lab.fleet.round_simulation import simulate, simulate_plan
from shieldfl.methods.registry import named_method

EVEN = SensitivityCurve.log_normal(0.0)  # the share of positions is that of the sensitivity
HALF_OF_BUDGET_ONE = {"exposed_share": 1.0, "exposure_decay": math.log(2)}  # 1 - 2^-alpha
SETTINGS = MaskSettings(curve=EVEN, **HALF_OF_BUDGET_ONE, cost_weight=math.inf, mask_overlap=1.0)


def two_clusters():
    return fleet_of(
        client("a", cores=4.0, cluster="x"),
        client("b", cores=2.0, cluster="x"),
        client("c", cores=1.0, cluster="y"),
        parameters=1000,
    )


def test_everything_and_nothing():
    for method, count in (("fedavg", 0), ("full-he", 1000)):
        plan = plan_encryption(method, two_clusters(), SCHEME)
        assert plan.values.tolist() == [count] * 3
        assert plan.union_values.tolist() == [count]
        assert {plan.scores, plan.selects, plan.sends_mask} == {False}


def test_sense_crypt_by_hand():
    plan = plan_encryption("sense-crypt", two_clusters(), SCHEME, SETTINGS)
    # Budgets 1, 0.5 and, alone, 1: floors 1/2, 1 - 2^-1/2 = 0.29289 and 1/2.
    assert plan.values.tolist() == [500, 293, 500]
    assert plan.groups.tolist() == [0, 0, 1]
    assert plan.union_values.tolist() == [500, 500]
    assert plan.scores
    assert plan.selects
    assert plan.sends_mask


def test_clients_of_a_rigid_scheme_encrypt_their_union():
    plan = plan_encryption("sense-crypt", two_clusters(), RIGID.scheme, SETTINGS)
    assert plan.values.tolist() == [500, 500, 500]


def test_masks_that_do_not_overlap():
    apart = MaskSettings(curve=EVEN, **HALF_OF_BUDGET_ONE, cost_weight=math.inf, mask_overlap=0.0)
    plan = plan_encryption("sense-crypt", two_clusters(), SCHEME, apart)
    assert plan.union_values.tolist() == [math.ceil(1000 * (1 - 0.5 * 2**-0.5)), 500]
    assert union_ratio(np.array([0.5, 0.5]), 0.5) == pytest.approx((0.5 + 0.75) / 2)


@pytest.mark.parametrize("method", ["mask-crypt", "fedml-he"])
def test_uniform_masks_are_as_large_as_the_union(method):
    union = plan_encryption("sense-crypt", two_clusters(), SCHEME).union_values.max()
    plan = plan_encryption(method, two_clusters(), SCHEME)
    assert plan.values.tolist() == [union] * 3
    assert plan.union_values.tolist() == [union]
    assert (
        plan_encryption(method, two_clusters(), SCHEME, MaskSettings(uniform_ratio=0.1)).values.tolist()
        == [100] * 3
    )
    assert plan.scores == plan.selects == plan.sends_mask == (method == "mask-crypt")


def test_a_budget_that_is_too_small_wins_and_is_reported():
    strict = MaskSettings(0.1, 0.0, curve=EVEN)  # nine tenths, whatever the budget
    plan = plan_encryption("sense-crypt", two_clusters(), SCHEME, strict)
    assert plan.values.tolist() == [900, 500, 900]
    np.testing.assert_allclose(plan.budget_shortfall, [0.0, 0.4, 0.0], atol=1e-9)


def test_unknown_methods():
    with pytest.raises(ParameterError, match="unknown method 'sensecrypt': choose from fedavg, "):
        plan_encryption("sensecrypt", two_clusters(), SCHEME)


def test_a_method_that_does_not_say_what_it_encrypts_is_not_simulated():
    with pytest.raises(ParameterError, match="dict-pfl cannot be simulated"):
        plan_encryption("dict-pfl", two_clusters(), SCHEME)


def test_a_method_that_says_it_in_other_words_is_not_simulated(monkeypatch):
    stated = replace(named_method("fedavg"), name="offered", masks="all")
    offer(monkeypatch, "offered", class_of(stated))
    with pytest.raises(
        ParameterError, match=r"offered cannot be simulated: .* nothing, everything, one share, budgets"
    ):
        plan_encryption("offered", two_clusters(), SCHEME)


@pytest.mark.parametrize("alike", ["fedavg", "full-he", "fedml-he", "mask-crypt", "sense-crypt"])
def test_a_method_of_another_package_is_simulated_by_what_its_class_states(monkeypatch, alike):
    """No name decides anything."""
    expected = plan_encryption(alike, two_clusters(), SCHEME, SETTINGS)
    offer(monkeypatch, "offered", class_of(replace(named_method(alike), name="offered")))
    plan = plan_encryption("offered", two_clusters(), SCHEME, SETTINGS)
    assert plan.method == "offered"
    for one in fields(EncryptionPlan):
        if one.name != "method":
            np.testing.assert_array_equal(getattr(plan, one.name), getattr(expected, one.name))


def test_fields_of_packed_ciphertexts():
    values, unions = np.array([100, 100, 0]), np.array([400, 100, 400])
    single = replace(SCHEME, values_per_ciphertext=1)
    for overlap in (0.0, 0.5, 1.0):
        assert packed_fields(values, unions, single, overlap).tolist() == [100, 100, 0]
    assert packed_fields(values, unions, SCHEME, 1.0).tolist() == [100, 100, 0]
    # A quarter of the union: a ciphertext of ten has none of it with a chance of 0.75^10.
    assert packed_fields(values, unions, SCHEME, 0.0).tolist() == [math.ceil(400 * (1 - 0.75**10)), 100, 0]
    # 50 first ones, and 50 of the other 350.
    half = math.ceil(50 + 350 * (1 - (300 / 350) ** 10))
    assert packed_fields(values, unions, SCHEME, 0.5).tolist() == [half, 100, 0]


def test_packed_masks_that_were_drawn_at_random():
    generator = np.random.default_rng(1)
    chosen = generator.random((200, 1000)) < 0.1
    hit = 10 * chosen.reshape(200, 100, 10).any(axis=2).sum(axis=1)
    estimate = packed_fields(np.array([100]), np.array([1000]), SCHEME, 0.0)[0]
    assert hit.mean() == pytest.approx(estimate, rel=0.02)


def test_budgets_follow_from_links_and_processors():
    fleet = parse_fleet(
        """
        [model]
        parameters = 10
        [[client]]
        cores = 4
        cpu_share = 0.5
        core_speed = 2
        bandwidth = "10 MB/s"
        samples = 1
        [[client]]
        cores = 2
        upload = "5 MB/s"
        download = "100 MB/s"
        samples = 1
        """
    )
    np.testing.assert_allclose(fleet_budgets(fleet), [1.0, 0.5])


def test_a_curve_of_four_scores():
    """Of 7, 2, 1 and 0."""
    curve = SensitivityCurve((0.0, 0.25, 0.5, 0.75, 1.0), (0.0, 0.7, 0.9, 1.0, 1.0))
    np.testing.assert_allclose(curve.least_ratio([0.0, 0.7, 0.9, 1.0]), [0.0, 0.25, 0.5, 0.75], atol=0.005)
    # The mean is 2.5: one score is above it, and two are above six tenths of it.
    assert curve.best_ratio() == pytest.approx(0.25, abs=0.005)
    assert curve.best_ratio(cost_weight=0.6) == pytest.approx(0.5, abs=0.005)
    assert curve.best_ratio(cost_weight=math.inf) == 0.0


def test_positions_above_the_mean_of_log_normal_scores():
    assert SensitivityCurve.log_normal(1.5).best_ratio() == pytest.approx(NormalDist().cdf(-0.75), rel=0.02)


def test_equal_scores_hold_what_they_are():
    curve = SensitivityCurve.log_normal(0.0)
    np.testing.assert_allclose(curve.least_ratio([0.1, 0.5]), [0.1, 0.5], atol=1e-9)


def test_ratios_are_clamped_between_the_constraints():
    curve = SensitivityCurve((0.0, 0.1, 1.0), (0.0, 0.5, 1.0))  # the top tenth holds half
    half = MaskSettings(exposed_share=0.5, exposure_decay=0.0, curve=curve)  # of the sensitivity
    lax = replace(half, exposed_share=1.0)
    budgets = np.array([1.0, 0.3, 0.05])
    for chosen, expected, short in (
        (half, [0.1, 0.1, 0.05], [0.0, 0.0, 0.05]),
        (lax, [0.1, 0.1, 0.05], 0.0),
        (replace(lax, cost_weight=math.inf), 0.0, 0.0),
        # Equation 7: 1 - C exp(-B alpha), of equal scores.
        (
            MaskSettings(exposed_share=0.9, exposure_decay=2.0, cost_weight=math.inf, curve=EVEN),
            np.minimum(1 - 0.9 * np.exp(-2 * budgets), budgets),
            np.maximum(1 - 0.9 * np.exp(-2 * budgets) - budgets, 0.0),
        ),
    ):
        ratios, shortfall = chosen.mask_ratios(budgets)
        np.testing.assert_allclose(ratios, expected, atol=1e-3)
        np.testing.assert_allclose(shortfall, short, atol=1e-3)


EXPERIMENTS = Path(__file__).parents[4] / "bench" / "experiments"


@pytest.fixture(scope="module")
def system():
    return load_fleet(EXPERIMENTS / "fleet-system.toml")


@pytest.fixture(scope="module")
def anchored(system):
    any_scheme = paper_costs(system, plan_encryption("full-he", system, None)).scheme
    plan = plan_encryption("sense-crypt", system, any_scheme)
    return plan, paper_costs(system, plan)


def test_the_costs_give_back_table_3(system, anchored):
    plan, costs = anchored
    rounds = simulate_plan(system, costs, plan)
    means = {name: float(seconds.mean()) for name, seconds in rounds.stages.items()}
    assert means["train"] == pytest.approx(7.4)
    assert means["score"] == pytest.approx(0.1)
    assert means["select"] == pytest.approx(13.2)
    assert means["encrypt"] == pytest.approx(87.3)
    assert rounds.aggregation[0, 0] == pytest.approx(87.9)
    # Each client would take 56.8 s on average to open the union on its own processors; the server has 104.
    alone = plan.union_values[0] * costs.scheme.open_seconds / system.cores
    assert alone.mean() == pytest.approx(56.8)
    assert rounds.opening[0, 0] == pytest.approx(float(alone[0]) * 24 / 104)


def test_a_ciphertext_holds_one_value_in_512_bytes(system, anchored):
    _, costs = anchored
    sent = costs.upload_bytes(system, 1000, 1000, sends_mask=False)
    np.testing.assert_allclose(sent, 512 * 1000 + 4 * (PAPER_PARAMETERS - 1000))


def test_only_sense_crypt_solves(system, anchored):
    _, costs = anchored
    name = costs.scheme.name
    source = CostSource({name: costs}, None)
    others = source.for_method("mask-crypt", name)
    assert simulate("mask-crypt", system, others).stages["select"].sum() == 0.0
    assert source.for_method("sense-crypt", name) == costs
    assert replace(others, select_seconds_per_value=costs.select_seconds_per_value) == costs


def test_a_plan_that_encrypts_nothing(system):
    with pytest.raises(ParameterError, match="encrypts something"):
        paper_costs(system, plan_encryption("fedavg", system, None))


def test_the_fleet_is_the_one_of_the_experiments():
    assert replace(paper_fleet(), name="fleet-system") == load_fleet(EXPERIMENTS / "fleet-system.toml")
