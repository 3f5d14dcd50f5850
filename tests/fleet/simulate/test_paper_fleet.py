from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from shieldfl.fleet.fleet_file import load_fleet
from shieldfl.fleet.simulate.encryption_plan import MaskSettings
from shieldfl.fleet.simulate.paper_fleet import paper_cost_model, paper_fleet
from shieldfl.fleet.simulate.round_simulation import simulate
from shieldfl.fleet.simulate.sensitivity_curve import SecurityFloor

FILE = Path(__file__).parents[3] / "bench" / "experiments" / "fleet-system.toml"


def test_the_fleet_is_the_one_of_the_experiments():
    assert replace(paper_fleet(), name="fleet-system") == load_fleet(FILE)


def test_the_costs_give_back_table_3_on_it():
    settings = MaskSettings(floor=SecurityFloor(0.5, 2.0))
    rounds = simulate("sense-crypt", paper_fleet(), paper_cost_model(), settings=settings)
    assert rounds.stages["encrypt"].mean() == pytest.approx(87.3)
    assert rounds.aggregation[0, 0] == pytest.approx(87.9)
