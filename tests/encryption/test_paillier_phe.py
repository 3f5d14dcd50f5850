"""Agreement with python-paillier, an independent implementation, on the same keys and in both directions."""

from __future__ import annotations

import math
import warnings

import numpy as np
import phe
import pytest
from phe import paillier as phe_paillier

import shieldfl as sf
from encryption.paillier_keys import authority_for, factors_of
from encryption.wire_twin import reseal

STEP = 2**20
CIPHERTEXT_BYTES = 512
VALUES = np.array([0.0, 1.0, -1.0, 7.999999, -7.999999, 2.0**-20, -(2.0**-20), np.pi, -0.3])


@pytest.fixture(scope="module", params=["short-exponent", "classical"])
def authority(request):
    return authority_for(sf.paillier.Parameters(key_bits=2048, packing="single", randomizer=request.param))


@pytest.fixture(scope="module")
def phe_public(authority):
    return phe_paillier.PaillierPublicKey(math.prod(factors_of(authority)))


@pytest.fixture(scope="module")
def phe_private(authority, phe_public):
    return phe_paillier.PaillierPrivateKey(phe_public, *factors_of(authority))


def residues_of(frame):
    count = len(VALUES)
    payload = frame[len(frame) - 4 - CIPHERTEXT_BYTES * count : -4]
    return [
        int.from_bytes(payload[begin : begin + CIPHERTEXT_BYTES], "big")
        for begin in range(0, len(payload), CIPHERTEXT_BYTES)
    ]


def with_residues(frame, residues):
    payload = b"".join(residue.to_bytes(CIPHERTEXT_BYTES, "big") for residue in residues)
    return reseal(frame[: -4 - len(payload)] + payload + frame[-4:])


def signed(plaintext, n):
    return plaintext - n if plaintext > n // 2 else plaintext


def integers(values):
    return [int(value) for value in np.rint(values * STEP)]


def test_the_keys_are_the_same(authority, phe_public):
    assert phe_public.n.bit_length() == authority.public_key.parameters.key_bits == 2048
    frame = authority.public_key.to_bytes()
    assert int.from_bytes(frame[64 : 64 + 256], "big") == phe_public.n
    p, q = factors_of(authority)
    for prime in (p, q):
        assert phe.util.is_prime(prime)
        assert prime % 4 == 3


def test_what_is_encrypted_here_opens_there(authority, phe_public, phe_private):
    frame = sf.paillier.Encryptor(authority.public_key).encrypt(VALUES).to_bytes()
    opened = [signed(phe_private.raw_decrypt(residue), phe_public.n) for residue in residues_of(frame)]
    assert opened == integers(VALUES)


def test_a_sum_that_is_made_here_opens_there(authority, phe_public, phe_private):
    encryptor = sf.paillier.Encryptor(authority.public_key)
    aggregator = sf.paillier.Aggregator(authority.public_key)
    for scale in (1.0, -0.5, 0.25):
        with warnings.catch_warnings():
            # Some of the values are below a step, on purpose.
            warnings.simplefilter("ignore", sf.PrecisionWarning)
            aggregator.add(encryptor.encrypt(VALUES * scale))
    residues = residues_of(aggregator.total().to_bytes())
    opened = [signed(phe_private.raw_decrypt(residue), phe_public.n) for residue in residues]
    expected = [sum(parts) for parts in zip(*(integers(VALUES * s) for s in (1.0, -0.5, 0.25)), strict=True)]
    assert opened == expected


def test_what_is_encrypted_there_opens_here(authority, phe_public):
    template = sf.paillier.Encryptor(authority.public_key).encrypt(VALUES).to_bytes()
    residues = [phe_public.raw_encrypt(integer % phe_public.n) for integer in integers(VALUES)]
    aggregator = sf.paillier.Aggregator(authority.public_key)
    aggregator.add(with_residues(template, residues))
    np.testing.assert_array_equal(authority.open(aggregator.total()), np.rint(VALUES * STEP) / STEP)


def test_a_sum_of_both_opens_on_both_sides(authority, phe_public, phe_private):
    """Added there, as its library adds, and added here."""
    ours = sf.paillier.Encryptor(authority.public_key).encrypt(VALUES).to_bytes()
    theirs = [phe_public.encrypt(integer) for integer in integers(-2.0 * VALUES / 3)]
    expected = [a + b for a, b in zip(integers(VALUES), integers(-2.0 * VALUES / 3), strict=True)]
    added_there = [
        phe_paillier.EncryptedNumber(phe_public, residue, 0) + number
        for residue, number in zip(residues_of(ours), theirs, strict=True)
    ]
    assert [phe_private.decrypt(number) for number in added_there] == expected
    aggregator = sf.paillier.Aggregator(authority.public_key)
    aggregator.add(ours)
    template = sf.paillier.Encryptor(authority.public_key).encrypt(VALUES).to_bytes()
    aggregator.add(with_residues(template, [number.ciphertext() for number in theirs]))
    np.testing.assert_array_equal(authority.open(aggregator.total()) * STEP, expected)


def test_weights_and_plaintext_are_added_as_there(phe_public, phe_private):
    authority = authority_for(sf.paillier.Parameters(key_bits=2048, packing="single", max_weight=7))
    frame = sf.paillier.Encryptor(authority.public_key).encrypt(VALUES).to_bytes()
    clear = np.where(np.abs(VALUES) > 4, 0.0, -1.25)
    aggregator = sf.paillier.Aggregator(authority.public_key)
    aggregator.add(frame, weight=7, clear=clear)
    there = [
        (phe_paillier.EncryptedNumber(phe_public, residue, 0) + addend) * 7
        for residue, addend in zip(residues_of(frame), integers(clear), strict=True)
    ]
    expected = [7 * (a + b) for a, b in zip(integers(VALUES), integers(clear), strict=True)]
    assert [phe_private.decrypt(number) for number in there] == expected
    residues = residues_of(aggregator.total().to_bytes())
    assert [signed(phe_private.raw_decrypt(r), phe_public.n) for r in residues] == expected
    np.testing.assert_array_equal(authority.open(aggregator.total()) * STEP, expected)


def test_keys_that_were_made_there_are_used_here():
    from encryption.paillier_keys import public_key_frame, secret_of
    from shieldfl import _core

    public, private = phe_paillier.generate_paillier_keypair(n_length=2048)
    parameters = sf.paillier.Parameters(key_bits=2048, packing="single", randomizer="classical")
    key = _core.PaillierPublicKey.from_bytes(public_key_frame(parameters, public.n))
    decryptor = _core.PaillierDecryptor.import_secret(key, secret_of(private.p, private.q))
    wrapped = sf.paillier.PublicKey(key)
    aggregator = sf.paillier.Aggregator(wrapped)
    aggregator.add(sf.paillier.Encryptor(wrapped).encrypt(VALUES))
    sums, _ = decryptor.open(aggregator.total().parsed)
    np.testing.assert_array_equal(sums * STEP, integers(VALUES))
