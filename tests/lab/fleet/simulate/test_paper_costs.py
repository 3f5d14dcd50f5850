from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from shieldfl.errors import ParameterError
from shieldfl.lab.fleet.cost_source import (
    PAPER_PARAMETERS,
    paper_costs,
    paper_costs_for,
    paper_fleet,
    plan_encryption,
)
from shieldfl.lab.fleet.fleet import load_fleet
from shieldfl.lab.fleet.round_simulation import simulate, simulate_plan

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
    others = paper_costs_for("mask-crypt", costs)
    assert simulate("mask-crypt", system, others).stages["select"].sum() == 0.0
    assert paper_costs_for("sense-crypt", costs) == costs
    assert replace(others, select_seconds_per_value=costs.select_seconds_per_value) == costs


def test_a_plan_that_encrypts_nothing(system):
    with pytest.raises(ParameterError, match="encrypts something"):
        paper_costs(system, plan_encryption("fedavg", system, None))


def test_the_fleet_is_the_one_of_the_experiments():
    assert replace(paper_fleet(), name="fleet-system") == load_fleet(EXPERIMENTS / "fleet-system.toml")
