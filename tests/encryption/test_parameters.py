"""What parameters of any scheme say of themselves, and what they refuse; what Paillier's say beside."""

from __future__ import annotations

import copy
import logging
import pickle

import pytest

import shieldfl as sf
from encryption.paillier_keys import encode_parameters
from encryption.wire_twin import identifier


def named(one):
    return one.__name__[20:] if hasattr(one, "__name__") else str(one)


SHAPES = [
    *((sf.kahe, one) for one in ({}, {"ring_degree": 2048}, {"max_clients": 65}, {"sum_bits": 27})),
    *((sf.pads, one) for one in ({}, {"max_clients": 65}, {"value_bits": 23}, {"sum_bits": 27})),
    *((sf.ckks, one) for one in ({}, {"packing": "slots"}, {"ring_degree": 4096}, {"fraction_bits": 19})),
    *(
        (sf.paillier, one)
        for one in (
            {},
            {"key_bits": 4096},
            {"packing": "single"},
            {"max_clients": 65},
            {"value_bits": 23},
            {"fraction_bits": 19},
            {"max_weight": 2},
            {"randomizer": "classical"},
            {"max_clients": 1, "value_bits": 2, "fraction_bits": 0},
            {"max_clients": 2**14, "value_bits": 40, "fraction_bits": 52},
            {"max_clients": 100, "max_weight": 7, "value_bits": 8, "fraction_bits": 3},
        )
    ),
]


@pytest.mark.parametrize(("scheme", "settings"), SHAPES, ids=named)
def test_they_are_equal_where_everything_is_and_cannot_be_changed(scheme, settings):
    parameters = scheme.Parameters(**settings)
    for name, value in settings.items():
        assert parameters._facts[name] == value
    copies = [pickle.loads(pickle.dumps(parameters)), copy.copy(parameters), copy.deepcopy(parameters)]
    for again in (*copies, eval(repr(parameters), {"Parameters": scheme.Parameters})):
        assert again == parameters
        assert (repr(again), hash(again)) == (repr(parameters), hash(parameters))
    assert parameters != "parameters"
    with pytest.raises(AttributeError, match="immutable"):
        parameters.max_clients = 5
    with pytest.raises(TypeError):
        scheme.Parameters(3072)


def test_every_setting_is_part_of_the_identity():
    assert len({scheme.Parameters(**settings).id for scheme, settings in SHAPES}) == len(SHAPES)


@pytest.mark.parametrize("scheme", [sf.kahe, sf.pads, sf.ckks, sf.paillier], ids=named)
@pytest.mark.parametrize(
    "settings",
    [
        *({"max_clients": clients} for clients in (0, 2**20 + 1, 2**40, -1)),
        *({"value_bits": bits} for bits in (1, 41, 256 + 24, 2.5)),
        {"fraction_bits": 53},
        {"max_clients": 2**20, "value_bits": 40},
    ],
    ids=str,
)
def test_what_no_scheme_takes_is_named(scheme, settings):
    with pytest.raises(sf.ParameterError, match=next(iter(settings)) if len(settings) == 1 else "bits"):
        scheme.Parameters(**settings)


@pytest.mark.parametrize(
    ("scheme", "settings", "said"),
    [
        (sf.kahe, {"ring_degree": 1024}, "ring"),
        (sf.ckks, {"ring_degree": 1024}, "ring"),
        (sf.ckks, {"packing": "dense"}, "'exact' or 'slots'"),
        (sf.ckks, {"ring_degree": 2048, "value_bits": 40}, "bits"),
        (sf.ckks, {"packing": "slots", "fraction_bits": 52}, "ring"),
        (sf.paillier, {"key_bits": 1024}, "2048, 3072 or 4096"),
        (sf.paillier, {"key_bits": 2**16 + 2048}, "2048, 3072 or 4096"),
        (sf.paillier, {"key_bits": "3072"}, "key_bits"),
        (sf.paillier, {"packing": "exact"}, "'dense' or 'single'"),
        (sf.paillier, {"packing": None}, "'dense' or 'single'"),
        (sf.paillier, {"randomizer": "none"}, "'short-exponent' or 'classical'"),
        (sf.paillier, {"max_weight": 0}, "max_weight"),
        (sf.paillier, {"max_weight": 2**40}, "max_weight"),
        (sf.paillier, {"max_weight": 2**16, "max_clients": 2**10, "value_bits": 30}, "bits"),
    ],
    ids=named,
)
def test_what_a_scheme_does_not_take_is_named(scheme, settings, said):
    with pytest.raises(sf.ParameterError, match=said):
        scheme.Parameters(**settings)


@pytest.mark.parametrize("settings", [one for scheme, one in SHAPES if scheme is sf.paillier], ids=str)
def test_facts_of_paillier_follow_from_the_settings(settings):
    parameters = sf.paillier.Parameters(**settings)
    facts = parameters._facts
    guard_bits = (parameters.max_clients * parameters.max_weight - 1).bit_length()
    fields = (parameters.key_bits - 42) // (parameters.value_bits + guard_bits)
    assert parameters.values_per_ciphertext == (1 if parameters.packing == "single" else fields)
    assert parameters.bytes_per_value == parameters.key_bits / 4 / parameters.values_per_ciphertext
    top = 2 ** (parameters.value_bits - 1) - 1
    assert parameters.value_limit == top / 2.0**parameters.fraction_bits
    assert (parameters.security_bits, facts["guard_bits"]) == (128, guard_bits)
    assert parameters.id == identifier(encode_parameters(parameters))


def test_description_of_paillier_says_what_follows():
    text = sf.paillier.Parameters(max_weight=3).describe()
    for part in ("Paillier, dense packing, 128-bit security", "n of 3,072 bits", "768 bytes", "1,536 bits"):
        assert part in text
    assert "up to 64, weights up to 3, 8 guard bits" in text
    assert "101 values in 768 bytes: 7.60 bytes a value" in sf.paillier.Parameters().describe()
    single = sf.paillier.Parameters(packing="single", randomizer="classical").describe()
    assert "1 value in 768 bytes: 768.00 bytes a value" in single
    assert "r^n" in single


def test_less_than_128_bits_is_logged_when_it_is_asked_for_and_only_then(caplog):
    with caplog.at_level(logging.INFO, logger="shieldfl"):
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
