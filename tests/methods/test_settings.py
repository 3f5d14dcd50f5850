"""Settings that are out of range or contradict each other are refused before anything runs."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, replace

import pytest

from methods.method_conformance import SteppedRun
from methods.small_plan import small_plan
from methods.variants import CLIENTS, Variant
from shieldfl.errors import ParameterError
from shieldfl.methods.discovery import BUILT_IN
from shieldfl.methods.protocol.plan import checked_weights
from shieldfl.methods.registry import make_method
from shieldfl.methods.selective_shield.settings import SelectiveShieldSettings
from shieldfl.methods.settings import MethodSettings
from shieldfl.simulation.config import RunConfig

BAD_SHIELD = [
    ({"threshold": 1.5}, "threshold"),
    ({"threshold": math.nan}, "threshold"),
    ({"threshold": ()}, "threshold"),
    ({"threshold": (0.1, 1.01)}, "threshold"),
    ({"threshold": (0.1, math.nan)}, "threshold"),
    ({"consensus": 0.0}, "consensus"),
    ({"consensus": -0.5}, "consensus"),
    ({"consensus": 1.0001}, "consensus"),
    ({"consensus": math.nan}, "consensus"),
    ({"noise_multiplier": -0.1}, "noise_multiplier"),
    ({"noise_multiplier": math.nan}, "noise_multiplier"),
    ({"noise_multiplier": math.inf}, "noise_multiplier"),
    ({"noise_distribution": "laplace"}, "noise_distribution"),
    ({"noise_distribution": "discrete-gaussian", "noise_multiplier": 2.0**-30}, "2\\^-29"),
    ({"clip_norm": 0.0}, "clip_norm"),
    ({"clip_norm": -1.0}, "clip_norm"),
    ({"clip_norm": math.nan}, "clip_norm"),
    ({"clip_norm": math.inf}, "clip_norm"),
    ({"delta": 0.0}, "delta"),
    ({"delta": 1.0}, "delta"),
    ({"delta": math.nan}, "delta"),
    ({"target_epsilon": 0.0}, "target_epsilon"),
    ({"target_epsilon": -1.0}, "target_epsilon"),
    ({"target_epsilon": math.nan}, "target_epsilon"),
    ({"target_epsilon": math.inf}, "target_epsilon"),
    ({"target_epsilon": 1.0, "noise_multiplier": 1.0}, "not both"),
    ({"divisor": "clients"}, "divisor"),
    ({"negotiation": "secret"}, "negotiation"),
    ({"buffers": "shared"}, "buffers"),
    ({"sensitivity": "exact"}, "sensitivity"),
    ({"hide_personalised": True, "noise_multiplier": 1.0}, "negotiation='encrypted'"),
    ({"hide_personalised": True, "negotiation": "encrypted"}, "needs noise"),
]

BAD_RUN = [
    ({"clients": 0}, "clients"),
    ({"rounds": 0}, "rounds"),
    ({"local_epochs": -1}, "local_epochs"),
    ({"batch_size": 0}, "batch_size"),
    ({"min_clients": 0}, "min_clients"),
    ({"clients": 3, "min_clients": 4}, "min_clients"),
    ({"sample_rate": 0.0}, "sample_rate"),
    ({"sample_rate": 1.1}, "sample_rate"),
    ({"sample_rate": math.nan}, "sample_rate"),
    ({"alpha": 0.0}, "alpha"),
    ({"alpha": math.nan}, "alpha"),
    ({"learning_rate": 0.0}, "learning_rate"),
    ({"learning_rate": math.inf}, "learning_rate"),
    ({"learning_rate": math.nan}, "learning_rate"),
    ({"server_learning_rate": -1.0}, "server_learning_rate"),
    ({"momentum": 1.0}, "momentum"),
    ({"momentum": math.nan}, "momentum"),
    ({"weight_decay": -0.1}, "weight_decay"),
    ({"seed": -1}, "seed"),
]


@pytest.mark.parametrize(("bad", "named"), BAD_SHIELD, ids=str)
def test_bad_settings_of_selective_shield(bad, named):
    with pytest.raises(ParameterError, match=named):
        SelectiveShieldSettings(**bad)


@pytest.mark.parametrize(("bad", "named"), BAD_RUN, ids=str)
def test_bad_settings_of_a_run(bad, named):
    with pytest.raises(ParameterError, match=named):
        RunConfig(**bad)


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


@pytest.mark.parametrize("bad", [{"value_bits": 1}, {"value_bits": 41}, {"fraction_bits": 53}])
def test_numbers_that_no_ring_has_room_for(bad):
    with pytest.raises(ParameterError, match=r"_bits must be a whole number, at least . and at most"):
        SelectiveShieldSettings(**bad)


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


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("fedml-he", {"ratio": "0.1"}, r"ratio \(p\) must be a number, above 0 and at most 1, not '0.1'"),
        ("fedml-he", {"ratio": True}, r"ratio \(p\) must be a number"),
        ("mask-crypt", {"cut": "no"}, "cut must be true or false"),
    ],
)
def test_what_only_looks_like_a_number_or_a_truth_value_is_refused(name, changes, words):
    with pytest.raises(ParameterError, match=words):
        replace(MethodSettings().of(name), **changes)
