"""Settings of all methods in one object, changed by name; what is out of range or contradictory is refused."""

from __future__ import annotations

import pytest

from shieldfl.errors import ParameterError
from shieldfl.methods.registry import BUILT_IN, MethodSettings
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings


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
