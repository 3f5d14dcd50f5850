"""Settings of all methods in one object, changed by name; what is out of range or contradictory is refused."""

from __future__ import annotations

import math

import pytest

from shieldfl.errors import ParameterError
from shieldfl.lab.simulation.config import RunConfig
from shieldfl.methods.discovery import BUILT_IN
from shieldfl.methods.selective_shield.settings import SelectiveShieldSettings
from shieldfl.methods.settings import MethodSettings


def test_every_method_has_its_own_defaults_but_one_without_settings():
    settings = MethodSettings()
    assert [name for name in BUILT_IN if settings.of(name) is None] == ["fedavg"]
    assert settings.of("plain-he").encryption == "paillier-single"
    with pytest.raises(ParameterError, match="fedavg has no settings"):
        settings.changed("fedavg", {"x": 3})


@pytest.mark.parametrize("entries", [{"sense_crypt": SelectiveShieldSettings()}, {"fedavg": object()}])
def test_settings_of_another_method_are_refused(entries):
    with pytest.raises(ParameterError, match=r"not what the settings of (sense-crypt|fedavg) are given by"):
        MethodSettings(**entries)


def test_what_is_given_as_the_default_is_the_default():
    given = MethodSettings(selective_shield=SelectiveShieldSettings())
    assert given == MethodSettings()
    assert hash(given) == hash(MethodSettings())
    assert given != MethodSettings().changed("top-2", {"key_bits": 2048})


def test_a_change_leaves_the_others_and_the_original_alone():
    before = MethodSettings()
    after = before.changed(
        "sense-crypt", {"encryption": "ckks", "bandwidths": [3, 2.5], "information_bits": 4}
    )
    assert after.of("sense-crypt").encryption == "ckks"
    assert after.of("sense-crypt").bandwidths == (3.0, 2.5)
    assert type(after.of("sense-crypt").information_bits) is float
    assert after.of("selective-shield") == SelectiveShieldSettings()
    assert before == MethodSettings()


@pytest.mark.parametrize(
    ("name", "field", "value", "taken"),
    [
        ("sense-crypt", "cost_weight", 3, 3.0),
        ("sense-crypt", "information_bits", math.inf, math.inf),
        ("sense-crypt", "bandwidths", (3, 2.5), (3.0, 2.5)),
        ("sense-crypt", "clustering_epsilon", None, None),
        ("selective-shield", "threshold", 1, 1.0),
        ("selective-shield", "threshold", [0, 0.5], (0.0, 0.5)),
        ("dict-pfl", "train_fully", "0", ("0",)),
    ],
)
def test_a_value_becomes_what_the_field_declares(name, field, value, taken):
    stored = getattr(MethodSettings().changed(name, {field: value}).of(name), field)
    assert stored == taken
    assert type(stored) is type(taken)
    if isinstance(taken, tuple):
        assert [type(item) for item in stored] == [type(item) for item in taken]


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("sensecrypt", {}, "unknown method 'sensecrypt'.*selective-shield, sense-crypt"),
        ("sense-crypt", {"encrypt": "ckks"}, "no setting 'encrypt'.*encryption"),
        ("sense-crypt", {"encryption": "rsa"}, "sense-crypt.encryption must be one of .*paillier-dense, .*"),
        ("sense-crypt", {"cost_weight": True}, r"cost_weight \(beta_1\) must be a number, above 0"),
        ("sense-crypt", {"bandwidths": ["fast"]}, r"bandwidths must be a list .* above 0, not \['fast'\]"),
    ],
)
def test_what_cannot_be_set(name, values, words):
    with pytest.raises(ParameterError, match=words):
        MethodSettings().changed(name, values)


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
