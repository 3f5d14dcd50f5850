"""What Paillier parameters say of themselves, and what they refuse."""

from __future__ import annotations

import copy
import logging
import pickle

import pytest

import shieldfl as sf
import shieldfl._core as _core
from encryption.paillier_keys import encode_parameters
from encryption.wire_twin import identifier

SHAPES = [
    {},
    {"key_bits": 4096},
    {"packing": "single"},
    {"randomizer": "classical", "max_weight": 5},
    {"max_clients": 1, "value_bits": 2, "fraction_bits": 0},
    {"max_clients": 2**14, "value_bits": 40, "fraction_bits": 52},
    {"max_clients": 100, "max_weight": 7, "value_bits": 8, "fraction_bits": 3},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_facts_follow_from_the_settings(shape):
    parameters = sf.paillier.Parameters(**shape)
    settings = {
        "key_bits": 3072,
        "packing": "dense",
        "max_clients": 64,
        "value_bits": 24,
        "fraction_bits": 20,
        "max_weight": 1,
        "randomizer": "short-exponent",
    } | shape
    for name, value in settings.items():
        assert getattr(parameters, name) == value
    guard_bits = (settings["max_clients"] * settings["max_weight"] - 1).bit_length()
    field_bits = settings["value_bits"] + guard_bits
    fields = 1 if settings["packing"] == "single" else (settings["key_bits"] - 42) // field_bits
    assert parameters.values_per_ciphertext == fields
    assert parameters.bytes_per_value == settings["key_bits"] / 4 / fields
    top = 2 ** (settings["value_bits"] - 1) - 1
    assert parameters.value_limit == top / 2.0 ** settings["fraction_bits"]
    assert parameters.security_bits == 128
    assert parameters.id == identifier(encode_parameters(parameters))


def test_dense_packing_of_the_defaults():
    parameters = sf.paillier.Parameters()
    assert parameters.values_per_ciphertext == 101
    assert parameters.bytes_per_value == pytest.approx(7.60, abs=0.005)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_equal_where_everything_is(shape):
    parameters = sf.paillier.Parameters(**shape)
    again = sf.paillier.Parameters(**shape)
    assert parameters == again
    assert hash(parameters) == hash(again)
    assert parameters != sf.paillier.Parameters(**(shape | {"value_bits": 23, "fraction_bits": 1}))
    assert parameters != sf.ckks.Parameters()
    assert parameters != "parameters"
    for copied in (pickle.loads(pickle.dumps(parameters)), copy.copy(parameters), copy.deepcopy(parameters)):
        assert copied == parameters
        assert repr(copied) == repr(parameters)
    assert eval(repr(parameters), {"Parameters": sf.paillier.Parameters}) == parameters


def test_every_setting_is_part_of_the_identity():
    changes = [
        {},
        {"key_bits": 4096},
        {"packing": "single"},
        {"max_clients": 65},
        {"value_bits": 23},
        {"fraction_bits": 19},
        {"max_weight": 2},
        {"randomizer": "classical"},
    ]
    assert len({sf.paillier.Parameters(**change).id for change in changes}) == len(changes)


def test_description_says_what_follows():
    text = sf.paillier.Parameters(max_weight=3).describe()
    for part in ("Paillier, dense packing, 128-bit security", "n of 3,072 bits", "768 bytes", "1,536 bits"):
        assert part in text
    assert "up to 64, weights up to 3, 8 guard bits" in text
    single = sf.paillier.Parameters(packing="single", randomizer="classical").describe()
    assert "1 value in 768 bytes: 768.00 bytes a value" in single
    assert "r^n" in single


def test_less_than_128_bits_is_logged_when_it_is_asked_for_and_only_then(caplog):
    with caplog.at_level(logging.INFO, logger="shieldfl"):
        sf.paillier.Parameters()
        sf.paillier.Parameters(key_bits=4096)
        assert not caplog.records
        parameters = sf.paillier.Parameters(key_bits=2048)
        assert parameters.security_bits == 112
        (record,) = caplog.records
        assert (record.name, record.levelname) == ("shieldfl", "WARNING")
        assert "112-bit security" in record.getMessage()
        pickle.loads(pickle.dumps(parameters))
        assert len(caplog.records) == 1
        sf.paillier.Parameters(key_bits=2048)
        assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"key_bits": 1024}, "2048, 3072 or 4096"),
        ({"key_bits": 2**16 + 2048}, "2048, 3072 or 4096"),
        ({"key_bits": "3072"}, "key_bits"),
        ({"packing": "exact"}, "'dense' or 'single'"),
        ({"packing": None}, "'dense' or 'single'"),
        ({"randomizer": "none"}, "'short-exponent' or 'classical'"),
        ({"max_clients": 0}, "max_clients"),
        ({"max_clients": 2**20 + 1}, "max_clients"),
        ({"max_clients": 2**40}, "max_clients"),
        ({"max_clients": -1}, "max_clients"),
        ({"value_bits": 1}, "value_bits"),
        ({"value_bits": 41}, "value_bits"),
        ({"value_bits": 256 + 24}, "value_bits"),
        ({"value_bits": 2.5}, "value_bits"),
        ({"fraction_bits": 53}, "fraction_bits"),
        ({"max_weight": 0}, "max_weight"),
        ({"max_weight": 2**40}, "max_weight"),
        ({"max_clients": 2**20, "value_bits": 40}, "bits"),
        ({"max_weight": 2**16, "max_clients": 2**10, "value_bits": 30}, "bits"),
    ],
    ids=str,
)
def test_bad_settings_are_named(settings, named):
    with pytest.raises(sf.ParameterError, match=named):
        sf.paillier.Parameters(**settings)


def test_settings_are_named_and_stay_as_they_are():
    with pytest.raises(TypeError):
        sf.paillier.Parameters(3072)
    parameters = sf.paillier.Parameters()
    with pytest.raises(AttributeError, match="immutable"):
        parameters.max_clients = 5


@pytest.mark.parametrize("changed", [{"packing": "Dense"}, {"randomizer": "short"}])
def test_the_core_takes_no_name_that_it_does_not_know(changed):
    settings = {"packing": "dense", "randomizer": "classical", "max_weight": 1, "fraction_bits": 20}
    known = {"key_bits": 2048, "max_clients": 4, "value_bits": 24} | settings
    _core.PaillierParameters(**known)
    with pytest.raises(sf.ParameterError, match="unknown name"):
        _core.PaillierParameters(**(known | changed))
