"""Settings that are out of range or contradict each other are refused before anything runs."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError

import pytest

from methods.method_conformance import SteppedRun
from methods.small_plan import small_plan
from methods.variants import CLIENTS, Variant
from shieldfl.errors import ParameterError
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.methods.discovery import BUILT_IN
from shieldfl.methods.registry import make_method
from shieldfl.methods.selective_shield.settings import SelectiveShieldSettings
from shieldfl.methods.settings import MethodSettings
from shieldfl.rounds.plan import checked_weights

BAD_SHIELD = [
    ({"noise_distribution": "discrete-gaussian", "noise_multiplier": 2.0**-30}, "2\\^-29"),
    ({"target_epsilon": 1.0, "noise_multiplier": 1.0}, "not both"),
    ({"hide_personalised": True, "noise_multiplier": 1.0}, "needs encrypted negotiation"),
    ({"hide_personalised": True, "negotiation": "encrypted"}, "needs noise"),
]


@pytest.mark.parametrize(("bad", "named"), BAD_SHIELD, ids=str)
def test_settings_that_contradict_each_other(bad, named):
    with pytest.raises(ParameterError, match=named):
        SelectiveShieldSettings(**bad)


def test_a_run_of_fewer_clients_than_a_round_needs():
    with pytest.raises(ParameterError, match="min_clients is 4, above the number of clients"):
        RunConfig(clients=3, min_clients=4)


@pytest.mark.parametrize(
    "good",
    [
        {},
        {"threshold": -1.0, "consensus": 1.0},
        {"threshold": 1.0, "consensus": 1e-9},
        {"threshold": (0.0, -0.5, 1.0)},
        {"target_epsilon": 1e-3},
        {"noise_distribution": "discrete-gaussian"},
        {"noise_distribution": "discrete-gaussian", "noise_multiplier": 2.0**-29},
        {"hide_personalised": True, "negotiation": "encrypted", "target_epsilon": 1.0},
    ],
)
def test_settings_at_the_edge_of_their_ranges_are_taken(good):
    settings = SelectiveShieldSettings(**good)
    with pytest.raises(FrozenInstanceError):
        settings.delta = 0.5


def test_an_iid_run_is_a_valid_one():
    assert math.isinf(RunConfig(alpha=math.inf).alpha)


@pytest.mark.parametrize("min_clients", [0, CLIENTS + 1])
def test_a_key_authority_that_would_open_anything_or_nothing(min_clients):
    variant = Variant("selective-shield", SelectiveShieldSettings(), "selective-shield")
    with pytest.raises(ParameterError, match="min_clients"):
        SteppedRun(variant, min_clients=min_clients)


def test_an_unknown_method_is_refused_with_the_known_names():
    with pytest.raises(ParameterError, match=f"'fedavgg'.*{', '.join(BUILT_IN)}"):
        make_method("fedavgg", MethodSettings(), small_plan())


@pytest.mark.parametrize("weights", [(1, 0), (1, -1), (1, 2.0), (1, math.nan), (1,), (1, 1, 1)])
def test_weights_must_be_positive_whole_numbers_one_for_each_client(weights):
    with pytest.raises(ParameterError, match="weight"):
        small_plan(weights)


@pytest.mark.parametrize(
    ("weights", "stated"), [(None, "uniform"), ((1, 1), "uniform"), ((1, 3), [1, 3])], ids=str
)
@pytest.mark.parametrize("method", ["fedavg", "dp-sgd", "full-he"])
def test_reports_state_the_weights(method, weights, stated):
    made = make_method(method, MethodSettings(), small_plan(weights, samples=100))
    assert made.name == method
    assert made.settings(checked_weights(weights, 2))["weights"] == stated


@pytest.mark.parametrize("method", ["selective-shield", "dp-fedavg"])
def test_methods_that_weigh_all_alike_say_so_where_weights_are_given(method):
    def notes_for(weights):
        return make_method(method, MethodSettings(), small_plan(weights)).notes

    assert notes_for(None) == []
    (note,) = notes_for((1, 3))
    assert note.startswith(f"{method} weighs all clients alike")
