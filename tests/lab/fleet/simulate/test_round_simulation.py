"""Rounds that can be worked out by hand, their figures, and plans of them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.fleet.fleets import COSTS, RIGID, WIDE, client, fleet_of, free_but_for, three_clients
from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.cost_source import MaskSettings
from shieldfl.lab.fleet.fleet_simulation import SimulationSettings, client_rows, summarise
from shieldfl.lab.fleet.round_simulation import STAGES, plan_round, simulate

FIFTH = MaskSettings(uniform_ratio=0.2)


def test_three_clients_by_hand():
    rounds = simulate("mask-crypt", three_clients(), COSTS, settings=FIFTH)
    sent = 2 * 100 + 80 * 4 + 13
    expected = {
        "train": [0.5, 2.0, 1.0],
        "score": [1.0, 2.0, 1.0],
        "select": [2.0, 4.0, 2.0],
        "encrypt": [1.0, 4.0, 2.0],
        "upload": [sent / 100, sent / 100, 1.0 + sent / 20],
    }
    for name in STAGES:
        np.testing.assert_allclose(rounds.stages[name], [expected[name]])
    arrivals = [4.5 + 5.33, 12.0 + 5.33, 7.0 + 26.65]
    np.testing.assert_allclose(rounds.client_seconds, [arrivals])
    np.testing.assert_allclose(rounds.aggregation, [[0.5]])  # only the last update is still to be added
    np.testing.assert_allclose(rounds.opening, [[1.0]])
    np.testing.assert_allclose(rounds.download, [[1.0, 1.0, 2.0]])
    np.testing.assert_allclose(rounds.round_seconds, [33.65 + 0.5 + 1.0 + 2.0])
    np.testing.assert_allclose(rounds.idle, [[37.15 - 9.83 - 1.0, 37.15 - 17.33 - 1.0, 37.15 - 33.65 - 2.0]])
    np.testing.assert_allclose(rounds.idle_share, rounds.idle[0] / 37.15)
    np.testing.assert_allclose(rounds.straggler_index, [33.65 / 17.33])
    np.testing.assert_allclose(rounds.bytes_up, [[sent] * 3])
    np.testing.assert_allclose(rounds.bytes_down, [[400.0] * 3])
    assert rounds.stragglers == ["far"]
    assert not rounds.failed.any()


def test_adding_begins_with_the_last_update_if_the_costs_say_so():
    late = simulate("mask-crypt", three_clients(), replace(COSTS, adds_on_arrival=False), settings=FIFTH)
    np.testing.assert_allclose(late.aggregation, [[3 * 0.5]])


def test_updates_that_arrive_together_queue():
    fleet = fleet_of(client("twin", count=4))
    rounds = simulate("full-he", fleet, COSTS)
    np.testing.assert_allclose(rounds.aggregation, [[4 * 10 * 0.25]])
    early = fleet_of(client("twin", count=4), client("last", upload_bytes_per_second=10.0))
    # The twins arrive after 21 s and keep the aggregator busy until 31 s; the last update arrives after 111 s.
    np.testing.assert_allclose(simulate("full-he", early, COSTS).aggregation, [[10 * 0.25]])
    close = fleet_of(client("twin", count=4), client("last", upload_bytes_per_second=1000 / 12))
    # It arrives after 23 s, in the queue: all is added after 21 + 5 * 2.5 s.
    np.testing.assert_allclose(simulate("full-he", close, COSTS).aggregation, [[21 + 5 * 2.5 - 23]])


def test_clusters_do_not_wait_for_each_other():
    fleet = fleet_of(client("quick", cluster="a"), client("slow", cluster="b", cpu_share=0.1))
    rounds = simulate("sense-crypt", fleet, COSTS, rounds=3)
    quick, slow = rounds.cluster_seconds[0]
    assert quick < slow
    assert rounds.total_seconds == pytest.approx(3 * slow)
    np.testing.assert_allclose(rounds.round_seconds, slow)
    # Both share the aggregator.
    np.testing.assert_allclose(rounds.opening[0], 2 * COSTS.open_seconds(fleet, rounds.plan.union_values, 1))
    together = simulate("mask-crypt", fleet, COSTS)
    assert together.cluster_seconds.shape == (1, 1)
    assert rounds.stragglers == ["slow", "quick"]


def test_an_answer_takes_longer_the_more_clients_stay():
    costs = replace(COSTS, scheme=replace(COSTS.scheme, answer_seconds_per_client=0.25))
    fleet = fleet_of(client("stays", count=2), client("leaves", dropout_probability=1.0))
    whole = float(simulate("full-he", fleet, COSTS).opening[0, 0])
    assert float(simulate("full-he", fleet, costs).opening[0, 0]) == pytest.approx(
        whole * (0.5 + 2 * 0.25) / 0.5
    )


def test_a_client_that_drops_out_in_the_middle():
    fleet = fleet_of(client("loyal", count=2), client("lost", dropout_probability=1.0))
    rounds = simulate("full-he", fleet, COSTS, rounds=50, seed=3)
    assert rounds.dropped.tolist() == [[False, False, True]] * 50
    assert not rounds.failed.any()
    whole = simulate("full-he", fleet_of(client("loyal", count=3)), COSTS).client_seconds[0, 0]
    until = rounds.client_seconds[:, 2]
    assert (until < whole).all()
    assert 0.0 < until.min() < 0.2 * whole < 0.8 * whole < until.max()
    # Two updates are added, and the lost client neither waits nor downloads.
    np.testing.assert_allclose(rounds.aggregation, 2 * 10 * 0.25)
    assert (rounds.idle[:, 2] == 0.0).all()
    assert (rounds.bytes_down[:, 2] == 0.0).all()
    assert rounds.wasted_seconds == pytest.approx(until.sum())
    # What had left is in proportion to the time in the upload.
    np.testing.assert_allclose(rounds.bytes_up[:, 2], rounds.stages["upload"][:, 2] * 100.0)
    assert np.isnan(rounds.idle_share[2])
    np.testing.assert_allclose(rounds.straggler_index, 1.0)


def test_when_all_drop_out_the_round_fails_and_says_so():
    fleet = three_clients(dropout_probability=1.0)
    rounds = simulate("full-he", fleet, COSTS, rounds=2)
    assert rounds.failed.all()
    assert np.isnan(rounds.straggler_index).all()
    assert np.isnan(rounds.idle_share).all()
    np.testing.assert_allclose(rounds.round_seconds, rounds.client_seconds.max(axis=1))
    assert rounds.bytes_down.sum() == 0.0
    assert rounds.wasted_seconds == pytest.approx(rounds.client_seconds.sum())
    summary = summarise(rounds)
    assert summary.straggler_index is summary.idle_share is None
    assert (summary.dropouts, summary.failed_rounds) == (6, 2)


def test_too_few_survivors_are_not_opened():
    fleet = fleet_of(client("loyal"), client("lost", dropout_probability=1.0), min_clients=2)
    rounds = simulate("full-he", fleet, COSTS)
    assert rounds.failed.all()
    assert rounds.opening.sum() == rounds.aggregation.sum() == rounds.bytes_down.sum() == 0.0
    assert rounds.bytes_up[0, 0] == 1000.0


@settings(max_examples=40)
@given(
    method=st.sampled_from(SimulationSettings().methods),
    seed=st.integers(0, 2**32),
    dropout=st.sampled_from([0.0, 0.3, 0.9]),
    cores=st.lists(st.floats(0.1, 64.0), min_size=1, max_size=6),
    on_arrival=st.booleans(),
)
def test_nothing_gets_lost(method, seed, dropout, cores, on_arrival):
    kinds = [
        client(
            str(number),
            cores=count,
            dropout_probability=dropout,
            cluster=str(number % 2),
            latency_seconds=0.5,
        )
        for number, count in enumerate(cores)
    ]
    fleet = fleet_of(*kinds, parameters=1000)
    rounds = simulate(method, fleet, replace(COSTS, adds_on_arrival=on_arrival), rounds=4, seed=seed)
    of_cluster = rounds.cluster_seconds[:, rounds.plan.groups]
    spent = rounds.client_seconds + rounds.download + rounds.idle
    np.testing.assert_allclose(np.where(rounds.dropped, of_cluster, spent), of_cluster)
    assert (rounds.client_seconds <= of_cluster * (1 + 1e-12)).all()
    full = COSTS.upload_bytes(fleet, rounds.plan.values, rounds.plan.fields, rounds.plan.sends_mask)
    np.testing.assert_array_equal(rounds.bytes_up[~rounds.dropped], np.tile(full, (4, 1))[~rounds.dropped])
    assert (rounds.bytes_up <= full).all()
    opened = ~rounds.dropped & ~rounds.failed[:, rounds.plan.groups]
    np.testing.assert_array_equal(rounds.bytes_down, np.where(opened, 4.0 * 1000, 0.0))
    assert all((seconds >= 0.0).all() for seconds in rounds.stages.values())
    assert (rounds.aggregation >= -1e-9).all()


def test_the_same_seed_gives_the_same_rounds():
    fleet = three_clients(dropout_probability=0.5)
    first, again, other = (simulate("full-he", fleet, COSTS, rounds=20, seed=seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.dropped, again.dropped)
    np.testing.assert_array_equal(first.round_seconds, again.round_seconds)
    assert (first.dropped != other.dropped).any()


@pytest.mark.parametrize("changes", [{"rounds": 0}, {"rounds": -1}, {"rounds": 1.5}, {"seed": -1}])
def test_refused(changes):
    with pytest.raises(ParameterError):
        simulate("full-he", three_clients(), COSTS, **changes)


def test_figures_of_a_round():
    rounds = simulate("mask-crypt", three_clients(), COSTS, settings=MaskSettings(uniform_ratio=0.2))
    summary = summarise(rounds)
    assert (summary.method, summary.scheme, summary.clients, summary.rounds) == ("mask-crypt", "tens", 3, 1)
    assert summary.straggler == "far"
    assert summary.round_seconds == summary.total_seconds == pytest.approx(37.15)
    assert summary.slowest_client_seconds == pytest.approx(33.65)
    assert summary.bytes_up == pytest.approx(3 * 533)
    assert summary.least_encrypted_share == summary.most_encrypted_share == summary.union_share == 0.2
    assert (summary.dropouts, summary.failed_rounds, summary.clients_short_of_budget) == (0, 0, 0)
    assert json.loads(json.dumps(asdict(summary))) == asdict(summary)


def test_rows_add_up_to_the_round():
    rounds = simulate("full-he", three_clients(), COSTS, rounds=2)
    rows = client_rows(rounds)
    assert [row["client"] for row in rows] == ["fast", "half", "far"]
    for row in rows:
        assert sum(value for key, value in row.items() if key.endswith("_seconds")) == pytest.approx(
            float(rounds.round_seconds[0])
        )
    assert json.loads(json.dumps(rows)) == rows


# Everything but encryption is free, and a ciphertext holds one value: budgets are the time times the speed.
ENCRYPTION_ALONE = free_but_for(encrypt_seconds={1: 1.0})


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
