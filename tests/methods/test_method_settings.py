"""Settings of all methods in one object, changed by name."""

from __future__ import annotations

import math

import pytest

from shieldfl.errors import ParameterError
from shieldfl.methods.selective_shield_settings import SelectiveShieldSettings
from shieldfl.methods.settings import MethodSettings


def test_names_are_those_of_the_methods():
    assert {"selective-shield", "sense-crypt"} <= set(MethodSettings.names())


def test_a_change_leaves_the_others_and_the_original_alone():
    before = MethodSettings()
    after = before.changed(
        "sense-crypt", {"encryption": "ckks", "bandwidths": [3, 2.5], "information_bits": 4}
    )
    assert after.sense_crypt.encryption == "ckks"
    assert after.sense_crypt.bandwidths == (3.0, 2.5)
    assert type(after.sense_crypt.information_bits) is float
    assert after.selective_shield == SelectiveShieldSettings()
    assert before == MethodSettings()


def test_a_single_value_fills_a_list_and_none_takes_anything():
    settings = MethodSettings().changed("sense-crypt", {"bandwidths": 3, "clustering_epsilon": 0.5})
    assert settings.sense_crypt.bandwidths == (3.0,)
    assert settings.sense_crypt.clustering_epsilon == 0.5
    assert math.isinf(
        MethodSettings().changed("sense-crypt", {"information_bits": math.inf}).sense_crypt.information_bits
    )


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("sensecrypt", {}, "'sensecrypt'.*selective-shield, sense-crypt"),
        ("sense-crypt", {"encrypt": "ckks"}, "no setting 'encrypt'.*encryption"),
        ("sense-crypt", {"encryption": 5}, "sense-crypt.encryption must be of the type"),
        ("sense-crypt", {"key_bits": 2048.0}, "sense-crypt.key_bits must be of the type"),
        ("sense-crypt", {"encryption": "rsa"}, "encryption must be one of"),
        ("selective-shield", {"adaptive_clip": 1}, "must be of the type"),
    ],
)
def test_what_cannot_be_set(name, values, words):
    with pytest.raises(ParameterError, match=words):
        MethodSettings().changed(name, values)
