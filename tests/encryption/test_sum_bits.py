"""Sums of fewer bits than any sum takes: shorter ciphertexts, for those who know that their sums are small."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import shieldfl as sf
from shieldfl.encryption.answers import open_total
from shieldfl.encryption.opening import sum_key
from shieldfl.encryption.parameters import SumNeeds
from shieldfl.encryption.registry import scheme_named

CLIENTS, VALUE_BITS, SUM_BITS = 100, 13, 16
SETTINGS = {"max_clients": CLIENTS, "value_bits": VALUE_BITS, "fraction_bits": 0}
BOTH = pytest.mark.parametrize("scheme", [sf.kahe, sf.pads], ids=["kahe", "pads"])


def opened(scheme, parameters, updates):
    key = scheme.PublicKey.of_session(parameters, bytes(32), bytes(16))
    keys = [scheme.ClientKey.of_secret(key, client, bytes([client]) * 32) for client in range(len(updates))]
    aggregator = scheme.Aggregator(key)
    for own, update in zip(keys, updates, strict=True):
        aggregator.add(scheme.Encryptor(own).encrypt(update))
    total = aggregator.total()
    return open_total(key, total, [sum_key(key, total.request(), keys)])[0]


@BOTH
def test_draws_of_all_clients_open_in_far_fewer_bits_than_their_largest_would_take(scheme):
    narrow = scheme.Parameters(**SETTINGS, sum_bits=SUM_BITS)
    full = scheme.Parameters(**SETTINGS)
    assert narrow.bytes_per_value < full.bytes_per_value * (0.85 if scheme is sf.pads else 0.9)
    rng = np.random.default_rng(5)
    # 11 deviations of one are in range, and as many of their sum: 2^15 is 11 times the root of 100 times 298.
    updates = rng.normal(0, 298, (CLIENTS, 20_000)).round()
    assert CLIENTS * np.abs(updates).max() > 2 ** (SUM_BITS - 1)
    np.testing.assert_array_equal(opened(scheme, narrow, updates), updates.sum(axis=0))
    np.testing.assert_array_equal(opened(scheme, full, updates), updates.sum(axis=0))


@BOTH
def test_one_client_s_range_is_what_value_bits_say(scheme):
    narrow = scheme.Parameters(**SETTINGS, sum_bits=SUM_BITS)
    assert narrow.value_limit == 2 ** (VALUE_BITS - 1) - 1
    key = scheme.PublicKey.of_session(narrow, bytes(32), bytes(16))
    encryptor = scheme.Encryptor(scheme.ClientKey.of_secret(key, 0, bytes(32)))
    encryptor.encrypt(np.array([narrow.value_limit]))
    with pytest.raises(sf.RangeError):
        encryptor.encrypt(np.array([narrow.value_limit + 1]))


@BOTH
def test_weights_cannot_travel_beside_them(scheme):
    """Their sum is as large as it is, whatever the sums of values are known to be."""
    for sum_bits, is_taken in ((SUM_BITS, False), (VALUE_BITS + 7, True), (None, True)):
        parameters = scheme.Parameters(**SETTINGS, sum_bits=sum_bits)
        key = scheme.PublicKey.of_session(parameters, bytes(32), bytes(16))
        encryptor = scheme.Encryptor(scheme.ClientKey.of_secret(key, 0, bytes(32)))
        if is_taken:
            encryptor.encrypt(np.ones(1), weight=1.0)
            continue
        with pytest.raises(sf.ParameterError, match="sum_bits"):
            encryptor.encrypt(np.ones(1), weight=1.0)


@BOTH
def test_parameters_are_what_they_say(scheme):
    narrow = scheme.Parameters(**SETTINGS, sum_bits=SUM_BITS)
    other = scheme.Parameters.plan(**SETTINGS, sum_bits=SUM_BITS, goal="size", count=10**6)
    for one in (narrow, other):
        for again in (eval(repr(one), {"Parameters": scheme.Parameters}), pickle.loads(pickle.dumps(one))):
            assert again == one
            assert again.describe().splitlines()[:3] == one.describe().splitlines()[:3]
        assert "up to 100, 3 guard bits for their sum\n" in one.describe()
        assert "below 2^15 steps, which clients see to: any sum would take 20 bits, not 16" in one.describe()
    full = scheme.Parameters(**SETTINGS)
    assert "up to 100, 7 guard bits for their sum\n" in full.describe()
    assert "which clients see to" not in full.describe()
    assert full == scheme.Parameters(**SETTINGS, sum_bits=VALUE_BITS + 7) != narrow
    key = scheme.PublicKey.of_session(narrow, bytes(32), bytes(16))
    assert scheme.PublicKey.from_bytes(key.to_bytes()).parameters == narrow


@BOTH
@pytest.mark.parametrize("sum_bits", [VALUE_BITS - 1, VALUE_BITS + 8, 0, 2**40])
def test_fewer_bits_than_a_value_s_and_more_than_any_sum_s_are_refused(scheme, sum_bits):
    for make in (scheme.Parameters, scheme.Parameters.plan):
        with pytest.raises(
            sf.ParameterError, match=r"sum_bits must be between 13, .* and 20, which holds any"
        ):
            make(**SETTINGS, sum_bits=sum_bits)


@BOTH
@pytest.mark.parametrize("sum_bits", [-1, 16.5, "16"])
def test_what_is_no_number_of_bits_is_refused(scheme, sum_bits):
    with pytest.raises(sf.ParameterError, match="sum_bits"):
        scheme.Parameters(**SETTINGS, sum_bits=sum_bits)


@pytest.mark.parametrize(
    ("encryption", "bits"), [("kahe", SUM_BITS), ("pads", SUM_BITS), ("ckks", 20), ("paillier-dense", 20)]
)
@pytest.mark.parametrize("count", [None, 4000])
def test_schemes_without_a_choice_of_it_have_room_for_any_sum(encryption, bits, count):
    needs = SumNeeds(
        clients=CLIENTS, value_bits=VALUE_BITS, fraction_bits=0, count=count, key_bits=2048, sum_bits=SUM_BITS
    )
    chosen = scheme_named(encryption).update_parameters(encryption, needs)
    assert chosen.value_bits + chosen._facts["guard_bits"] == bits


@pytest.mark.parametrize("encryption", ["kahe", "pads"])
def test_parameters_for_weights_beside_them_are_refused_before_there_are_keys(encryption):
    needs = SumNeeds(
        clients=CLIENTS, value_bits=VALUE_BITS, fraction_bits=0, sum_bits=SUM_BITS, most_weight=8
    )
    with pytest.raises(sf.ParameterError, match="sum_bits"):
        scheme_named(encryption).update_parameters(encryption, needs)


@BOTH
def test_as_many_bits_as_float64_holds_where_any_sum_would_take_more(scheme):
    settings = {"max_clients": 2**20, "value_bits": 40, "fraction_bits": 0}
    with pytest.raises(sf.ParameterError, match=r"20 guard bits .* at most 54 together"):
        scheme.Parameters(**settings)
    with pytest.raises(
        sf.ParameterError, match=r"sum_bits must be between 40, .* and 54, which float64 holds"
    ):
        scheme.Parameters(**settings, sum_bits=55)
    more = {"ring_degree": 8192} if scheme is sf.kahe else {}
    assert scheme.Parameters(**settings, **more, sum_bits=54).max_clients == 2**20


@BOTH
def test_a_sum_that_is_too_large_is_named_among_what_a_total_that_does_not_open_may_be(scheme):
    narrow = scheme.Parameters(**SETTINGS, sum_bits=VALUE_BITS)
    with pytest.raises(sf.WireFormatError, match="larger than sum_bits hold"):
        opened(scheme, narrow, np.full((2, 1), 2.0 ** (VALUE_BITS - 2)))
    with pytest.raises(sf.WireFormatError, match=r"one of them was altered$"):
        opened_with_another_secret(scheme, scheme.Parameters(**SETTINGS))


def opened_with_another_secret(scheme, parameters):
    """Open a client's ciphertext by what another one would have been encrypted with."""
    key = scheme.PublicKey.of_session(parameters, bytes(32), bytes(16))
    own, other = (scheme.ClientKey.of_secret(key, 0, bytes([i]) * 32) for i in (1, 2))
    aggregator = scheme.Aggregator(key)
    aggregator.add(scheme.Encryptor(own).encrypt(np.ones(9)))
    total = aggregator.total()
    return open_total(key, total, [sum_key(key, total.request(), [other])])
