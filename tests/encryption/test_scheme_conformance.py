"""The conformance suite over every scheme."""

from __future__ import annotations

import numpy as np
import pytest

import shieldfl as sf
from encryption.paillier_keys import authority_for
from encryption.scheme_conformance import SchemeConformance
from shieldfl.encryption.answers import open_total


class TestExact(SchemeConformance):
    @staticmethod
    def parameters(**changes):
        return sf.ckks.Parameters(**changes)


class TestExactLargeRing(SchemeConformance):
    @staticmethod
    def parameters(**changes):
        return sf.ckks.Parameters(ring_degree=4096, **changes)


class TestExactManyClients(SchemeConformance):
    @staticmethod
    def parameters(**changes):
        return sf.ckks.Parameters(max_clients=2**14, value_bits=40, fraction_bits=30, **changes)


class TestSlots(SchemeConformance):
    tolerance = 2.0**-20

    @staticmethod
    def parameters(**changes):
        return sf.ckks.Parameters(packing="slots", **changes)


class Paillier(SchemeConformance):
    """Keys of 2048 bits where the size is not what is tested: they are the quickest."""

    scheme = sf.paillier
    make_authority = staticmethod(authority_for)


class TestPaillierDense(Paillier):
    sizes = (1, 2, 67, 68, 69, 3000)
    weighted_sizes = (1, 67, 68, 500)
    large_size = 5000

    @staticmethod
    def parameters(**changes):
        return sf.paillier.Parameters(key_bits=2048, **changes)


class TestPaillierDenseManyClients(Paillier):
    sizes = (1, 37, 38, 300)
    weighted_sizes = (1, 36, 37)
    large_size = 700

    @staticmethod
    def parameters(**changes):
        return sf.paillier.Parameters(
            key_bits=2048, max_clients=2**14, value_bits=40, fraction_bits=30, **changes
        )


class TestPaillierSingle(Paillier):
    sizes = (1, 2, 65)
    weighted_sizes = (1, 20)
    large_size = 150

    @staticmethod
    def parameters(**changes):
        return sf.paillier.Parameters(key_bits=2048, packing="single", **changes)


class TestPaillierClassical(Paillier):
    sizes = (1, 68, 69, 600)
    weighted_sizes = (1, 68)
    large_size = 700

    @staticmethod
    def parameters(**changes):
        return sf.paillier.Parameters(key_bits=2048, randomizer="classical", **changes)


class TestPaillierOfTheDefaultSecurity(Paillier):
    sizes = (1, 101, 102)
    weighted_sizes = (1, 101)
    large_size = 300

    @staticmethod
    def parameters(**changes):
        return sf.paillier.Parameters(**changes)


def test_what_is_not_of_its_scheme_is_refused():
    key = sf.KeyAuthority(sf.ckks.Parameters()).public_key
    for make in (sf.ckks.Encryptor, sf.ckks.Aggregator):
        with pytest.raises(sf.ParameterError, match="leave purpose and part out"):
            make(key, part=1)
    totals, sessions = [], []
    for scheme in (sf.kahe, sf.pads):
        sessions.append(scheme.PublicKey.of_session(scheme.Parameters(), bytes(32), bytes(16)))
        aggregator = scheme.Aggregator(sessions[-1])
        aggregator.add(
            scheme.Encryptor(scheme.ClientKey.of_secret(sessions[-1], 0, bytes(32))).encrypt(np.ones(9))
        )
        totals.append(aggregator.total())
        assert type(totals[-1]) is scheme.Total
        with pytest.raises(sf.ParameterError, match="encrypts nothing"):
            scheme.Encryptor(sessions[-1])
    for session, total in zip(sessions, reversed(totals), strict=True):
        with pytest.raises(sf.KeyMismatchError, match="another scheme"):
            open_total(session, total, [bytes(32)])
    aggregator = sf.ckks.Aggregator(key)
    aggregator.add(sf.ckks.Encryptor(key).encrypt(np.ones(9)))
    with pytest.raises(sf.ParameterError, match="holder of the secret key"):
        aggregator.total().request()
    assert aggregator.total().named_clients == ()
