"""The core against its slow twin in Python, value for value."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

import shieldfl as sf
from core.wire_twin import make_known_key
from shieldfl import _core, _testing, reference


@pytest.fixture(scope="module", params=[2048, 4096])
def known_key(request):
    return make_known_key(sf.ckks.Parameters(ring_degree=request.param, max_clients=8, value_bits=20))


def first_words(seed, stream, count):
    words = reference.chacha20_words(seed, stream)
    return np.array([next(words) for _ in range(count)], dtype=np.uint64)


def test_reference_stream_is_chacha20_as_an_independent_library_has_it():
    seed = bytes(range(32))
    nonce = bytes(4) + bytes(4) + (7).to_bytes(8, "little")  # block counter, then (0, stream index)
    expected = Cipher(algorithms.ChaCha20(seed, nonce), mode=None).encryptor().update(bytes(1024))
    assert first_words(seed, 7, 128).tobytes() == expected


@pytest.mark.parametrize("stream", [0, 1, 2**33])
def test_samplers_read_the_same_bits(stream):
    words = reference.chacha20_words(reference.test_seed(5, 0), stream)
    ternary = reference.sample_ternary(words, 1000)
    np.testing.assert_array_equal(_testing.sample_ternary(5, stream, 1000), ternary)
    words = reference.chacha20_words(reference.test_seed(5, 0), stream)
    np.testing.assert_array_equal(_testing.sample_error(5, stream, 1000), reference.sample_error(words, 1000))


def test_transform_is_its_definition():
    prime = 12289  # 1 modulo 4096
    ring = reference.Ring(64, prime)
    values = np.random.default_rng(0).integers(0, prime, 64).astype(np.uint64)
    transformed = _testing.transform(values, prime, False)
    assert [int(x) for x in transformed] == ring.ntt([int(x) for x in values])
    np.testing.assert_array_equal(_testing.transform(transformed, prime, True), values)


def test_transform_turns_products_into_products():
    prime = 12289
    ring = reference.Ring(256, prime)
    rng = np.random.default_rng(1)
    a, b = (rng.integers(0, prime, 256).astype(np.uint64) for _ in range(2))
    product = _testing.transform(a, prime, False) * _testing.transform(b, prime, False) % np.uint64(prime)
    expected = ring.multiply([int(x) for x in a], [int(x) for x in b])
    assert [int(x) for x in _testing.transform(product, prime, True)] == expected


@pytest.mark.slow
def test_encryption_is_the_reference_encryption(known_key):
    """The same seed gives the same residues: sampling, transforms, products, packing, all at once."""
    parameters = known_key.parameters
    facts = parameters._facts
    per_block = facts["values_per_ciphertext"]
    rng = np.random.default_rng(2)
    values = rng.uniform(-0.4, 0.4, per_block + 5)
    frame = _testing.encrypt_insecure(known_key.public_frame, values, seed=9)
    residues = _testing.ciphertext_residues(frame).reshape(2, 2, len(facts["primes"]), parameters.ring_degree)

    seed = reference.test_seed(9, 1)  # seed 0 names the frame
    integers = reference.quantise(values, parameters.fraction_bits)
    field_bits = facts["value_bits"] + facts["guard_bits"]
    parts = {0: integers[:per_block], 1: integers[per_block:]}
    for block in (0, 1) if len(facts["primes"]) == 1 else (1,):  # quadratic products: mind the seconds
        part = parts[block]
        message = reference.pack_exact(part, parameters.ring_degree, facts["log2_scale"], field_bits)
        for index, prime in enumerate(facts["primes"]):
            ring = reference.Ring(parameters.ring_degree, prime)
            uniform = known_key.uniform[index]
            product = ring.multiply(uniform, known_key.secret)
            public0 = [(-p - e) % prime for p, e in zip(product, known_key.error, strict=True)]
            words = reference.chacha20_words(seed, block)
            c0, c1 = reference.encrypt(ring, public0, uniform, message, words)
            assert [int(x) for x in residues[block, 0, index]] == c0
            assert [int(x) for x in residues[block, 1, index]] == c1


@pytest.mark.slow
def test_reference_opens_what_the_core_sums():
    known_key = make_known_key(sf.ckks.Parameters(max_clients=8, value_bits=20, fraction_bits=16))
    parameters = known_key.parameters
    facts = parameters._facts
    public_key = sf.ckks.PublicKey.from_bytes(known_key.public_frame)
    rng = np.random.default_rng(3)
    updates = [rng.uniform(-1, 1, 50) for _ in range(3)]
    aggregator = sf.ckks.Aggregator(public_key)
    for index, update in enumerate(updates):
        aggregator.add(_testing.encrypt_insecure(known_key.public_frame, update, seed=index))
    residues = _testing.ciphertext_residues(aggregator.total().to_bytes(), True)
    c0, c1 = residues.reshape(2, parameters.ring_degree)
    prime = facts["primes"][0]
    message = reference.decrypt(reference.Ring(parameters.ring_degree, prime), c0, c1, known_key.secret)
    field_bits = facts["value_bits"] + facts["guard_bits"]
    sums = reference.read_sums(message, 50, prime, facts["log2_scale"], field_bits)
    expected = sum(reference.quantise(update, parameters.fraction_bits) for update in updates)
    assert sums == [int(x) for x in expected]


def test_known_key_passes_the_core_s_own_checks():
    known_key = make_known_key(sf.ckks.Parameters())
    public_key = _core.CkksPublicKey.from_bytes(known_key.public_frame)
    assert public_key.to_bytes() == known_key.public_frame
    decryptor = _core.CkksDecryptor.import_secret(public_key, known_key.exported_secret)
    assert bytes(decryptor.export_secret()) == known_key.exported_secret
