from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from lab.fleet.fleets import COSTS, RIGID, client, fleet_of, three_clients
from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.cost_source import MaskSettings
from shieldfl.lab.fleet.round_simulation import plan_round, simulate

# Everything but encryption is free, and a ciphertext holds one value: budgets are the time times the speed.
ENCRYPTION_ALONE = replace(
    COSTS,
    scheme=replace(
        COSTS.scheme, values_per_ciphertext=1, encrypt_seconds={1: 1.0}, add_seconds=0.0, open_seconds=0.0
    ),
    train_seconds_per_sample=0.0,
    score_seconds_per_value=0.0,
    select_seconds_per_value=0.0,
)
WIDE = {"upload_bytes_per_second": 1e15, "download_bytes_per_second": 1e15}


def test_budgets_by_hand():
    fleet = fleet_of(client("quick", cores=2.0, **WIDE), client("slow", cpu_share=0.5, **WIDE))
    best = plan_round(fleet, {"one": ENCRYPTION_ALONE}, 30.0001).best
    assert best.feasible
    assert best.budgets == (0.6, 0.15)
    assert (best.mask_ratio, best.least_budget) == (0.6, 0.15)
    assert best.round_seconds == pytest.approx(30.0)
    assert (best.limit.step, best.limit.client) == ("encrypt", "slow")
    assert best.least_round_seconds == pytest.approx(2.0)


def test_time_enough_for_everything():
    fleet = fleet_of(client("quick", **WIDE), client("slow", cpu_share=0.5, **WIDE))
    plan = plan_round(fleet, {"one": ENCRYPTION_ALONE}, 1000.0)
    assert plan.best.budgets == (1.0, 1.0)
    assert plan.best.limit.step == "nothing"
    assert "every client encrypts all parameters" in plan.describe()


def test_a_target_that_cannot_be_met():
    fleet = fleet_of(client("quick", **WIDE), client("slow", cpu_share=0.01, **WIDE))
    plan = plan_round(fleet, {"one": ENCRYPTION_ALONE}, 5.0, least_ratio=0.1)
    assert not plan.best.feasible
    assert plan.best.least_round_seconds == pytest.approx(1000.0)
    assert plan.best.budgets == (0.1, 0.1)
    said = plan.describe()
    assert "the least possible is 1e+03 s with one" in said
    assert "encrypt of slow" in said


@pytest.mark.parametrize(
    ("changes", "step", "name"),
    [
        ({"train_seconds_per_sample": 100.0}, "train", "half"),
        ({"score_seconds_per_value": 50.0}, "score", "half"),
        ({"select_seconds_per_value": 50.0}, "select", "half"),
        ({"encrypt": {1: 1000.0}}, "encrypt", "half"),
        ({"add": 1000.0}, "aggregate", None),
        ({"open": 1000.0}, "open", None),
        ({"ciphertext_bytes": 1e6}, "upload", "far"),
    ],
)
def test_what_limits_a_plan(changes, step, name):
    names = {"encrypt": "encrypt_seconds", "add": "add_seconds", "open": "open_seconds"}
    of_scheme = {names.get(key, key): value for key, value in changes.items() if "per" not in key}
    of_model = {key: value for key, value in changes.items() if "per" in key}
    costs = replace(COSTS, scheme=replace(COSTS.scheme, **of_scheme), **of_model)
    limit = plan_round(three_clients(), {"tens": costs}, 1.0).best.limit
    assert (limit.step, limit.client) == (step, name)
    assert limit.seconds > 0.0


def test_the_download_can_be_the_limit():
    fleet = fleet_of(client("near", **WIDE), client("far", **(WIDE | {"download_bytes_per_second": 1e-3})))
    limit = plan_round(fleet, {"one": ENCRYPTION_ALONE}, 1.0).best.limit
    assert (limit.step, limit.client) == ("download", "far")


@pytest.mark.parametrize("target", [35.0, 40.0, 60.0, 90.0, 150.0])
@pytest.mark.parametrize("costs", [COSTS, RIGID, replace(COSTS, adds_on_arrival=False)])
def test_plans_keep_their_target_and_use_it(target, costs):
    best = plan_round(three_clients(), {"tens": costs}, target).best
    assert best.feasible
    assert best.round_seconds <= target
    assert best.least_budget >= 0.01
    assert best.mask_ratio == max(best.budgets)
    if not costs.scheme.adds_clear_values:
        assert len(set(best.budgets)) == 1
        more = MaskSettings(uniform_ratio=min(1.0, best.mask_ratio + 0.011))
        longer = simulate("mask-crypt", three_clients(), costs, settings=more)
        assert longer.total_seconds > target or best.mask_ratio == 1.0


def test_more_time_never_means_smaller_masks():
    plans = [plan_round(three_clients(), {"tens": COSTS}, target).best for target in (35, 50, 80, 120, 200)]
    for shorter, longer in pairwise(plans):
        assert (np.array(longer.budgets) >= shorter.budgets).all()


def test_the_best_scheme_is_the_one_whose_slowest_client_encrypts_most():
    slow = replace(COSTS, scheme=replace(COSTS.scheme, encrypt_seconds={1: 4.0}))
    plan = plan_round(three_clients(), {"slow": slow, "tens": COSTS}, 60.0)
    assert plan.best.scheme == "tens"
    assert [other.scheme for other in plan.others] == ["slow"]
    assert plan.others[0].least_budget < plan.best.least_budget
    assert plan.describe().startswith("tens: clients encrypt")


def test_dropouts_do_not_change_a_plan():
    sure, unsure = three_clients(), three_clients(dropout_probability=0.9)
    costs = {"tens": COSTS}
    assert plan_round(sure, costs, 60.0) == plan_round(unsure, costs, 60.0)


def test_a_plan_of_no_scheme_is_refused():
    with pytest.raises(ParameterError, match="at least one scheme"):
        plan_round(three_clients(), {}, 1.0)


@pytest.mark.parametrize("values_per_ciphertext", [1, 10])
@pytest.mark.parametrize("target", [1.0, 30.0, 1_000.0])
def test_no_round_of_a_plan_is_shorter_than_its_shortest(values_per_ciphertext, target):
    """Where a ciphertext has fewer bytes than its values in the clear, a round that encrypts all is the shortest."""
    scheme = replace(
        ENCRYPTION_ALONE.scheme,
        values_per_ciphertext=values_per_ciphertext,
        ciphertext_bytes=3.0 * values_per_ciphertext,
        encrypt_seconds={1: 1e-9},
    )
    fleet = fleet_of(client("near"), client("far", upload_bytes_per_second=10.0))
    costs = replace(ENCRYPTION_ALONE, scheme=scheme)
    best = plan_round(fleet, {"small": costs}, target).best
    assert best.least_round_seconds <= best.round_seconds
    assert best.least_round_seconds < simulate("fedavg", fleet, costs).total_seconds
    assert best.feasible == (target >= best.least_round_seconds)
