from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from lab.fleet.fleets import COSTS, client, fleet_of, three_clients
from shieldfl.lab.fleet.encryption_plan import MaskSettings
from shieldfl.lab.fleet.fleet_simulation import client_rows, summarise
from shieldfl.lab.fleet.round_simulation import simulate


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


def test_a_fleet_that_is_lost_has_no_index():
    fleet = fleet_of(client("lost", count=2, dropout_probability=1.0))
    summary = summarise(simulate("full-he", fleet, COSTS, rounds=3))
    assert summary.straggler_index is None
    assert summary.idle_share is None
    assert (summary.dropouts, summary.failed_rounds) == (6, 3)
    assert summary.wasted_seconds > 0.0
