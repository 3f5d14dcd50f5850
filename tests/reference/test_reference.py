"""The core against its slow twin in Python, value for value."""

from __future__ import annotations

import math

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from hypothesis import given
from hypothesis import strategies as st

import shieldfl as sf
from encryption.product_ring import ProductRing
from encryption.wire_twin import ciphertext_frame, digits_of, make_known_key, sum_of
from reference import ckks as reference
from shieldfl import _core, _testing


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


@pytest.mark.parametrize("modulus", [2, 12289, 2**61 - 1, math.prod((2**50 - 27, 2**49 - 81))])
def test_the_quick_ring_multiplies_as_the_ring_is_defined(modulus):
    rng = np.random.default_rng(2)
    a = [int(x) % modulus for x in rng.integers(-(2**63), 2**63 - 1, 64)]
    ternary = [int(x) for x in rng.integers(-1, 2, 64)]
    extreme = [modulus - 1] * 64
    for left, right in ((a, extreme), (a, ternary), (extreme, extreme), ([0] * 64, a)):
        expected = reference.Ring(64, modulus).multiply(left, right)
        assert ProductRing(64, modulus).multiply(left, right) == expected


class Twin:
    """Encrypts under a known key in plain Python, from the seeds that the core's test randomness gives."""

    def __init__(self, key):
        self.key = key
        self.parameters = key.parameters
        self.primes = key.parameters._facts["primes"]
        self.rings = [ProductRing(key.parameters.ring_degree, prime) for prime in self.primes]
        self.public0 = []
        for ring, uniform in zip(self.rings, key.uniform, strict=True):
            product = ring.multiply(uniform, key.secret)
            self.public0.append([(-p - e) % ring.modulus for p, e in zip(product, key.error, strict=True)])

    def ciphertexts(self, values, seed):
        """Return for each ciphertext both halves, for each of these the digits of its coefficients."""
        per_block = self.parameters._facts["values_per_ciphertext"]
        starts = range(0, len(values), per_block)
        return [
            self.ciphertext(values[start : start + per_block], seed, block)
            for block, start in enumerate(starts)
        ]

    def ciphertext(self, values, seed, block):
        facts = self.parameters._facts
        integers = reference.quantise(values, self.parameters.fraction_bits)
        field_bits = facts["value_bits"] + facts["guard_bits"]
        message = reference.pack_exact(integers, self.parameters.ring_degree, facts["log2_scale"], field_bits)
        rows0, rows1 = [], []
        for ring, public0, public1 in zip(self.rings, self.public0, self.key.uniform, strict=True):
            words = reference.chacha20_words(reference.test_seed(seed, 1), block)
            c0, c1 = reference.encrypt(ring, public0, public1, message, words)
            rows0.append(c0)
            rows1.append(c1)
        return [digits_of(rows, self.primes) for rows in (rows0, rows1)]


@pytest.fixture(scope="module")
def twin(known_key):
    return Twin(known_key)


def frame_id(seed):
    """The first seed names the frame; the second one encrypts it."""
    return reference.test_seed(seed, 0)[:16]


def test_batch_is_the_twin_s_byte_for_byte(twin):
    """The same seed gives the same bytes: samples, transforms, products, digits, dropped bits, layout."""
    per_block = twin.parameters._facts["values_per_ciphertext"]
    values = np.random.default_rng(2).uniform(-0.4, 0.4, per_block + 5)
    frame = _testing.encrypt_insecure(twin.key.public_frame, values, seed=9, round=3)
    ciphertexts = twin.ciphertexts(values, 9)
    assert len(ciphertexts) == 2
    assert frame == ciphertext_frame(3, twin.key, ciphertexts, [frame_id(9)], count=len(values), round=3)


def test_total_is_the_twin_s_byte_for_byte_and_both_open_it(twin):
    """Three clients, an odd number: one and a half too much in each coefficient that lost bits."""
    facts = twin.parameters._facts
    assert min(facts["dropped_bits"]) > 0
    rng = np.random.default_rng(3)
    updates = [rng.uniform(-0.4, 0.4, 50) for _ in range(3)]
    aggregator = sf.ckks.Aggregator(sf.ckks.PublicKey.from_bytes(twin.key.public_frame))
    for seed, update in enumerate(updates):
        aggregator.add(_testing.encrypt_insecure(twin.key.public_frame, update, seed=seed))
    total = aggregator.total().to_bytes()
    batches = [twin.ciphertexts(update, seed)[0] for seed, update in enumerate(updates)]
    halves = sum_of(batches, twin.parameters)
    ids = [frame_id(seed) for seed in range(3)]
    assert total == ciphertext_frame(4, twin.key, [halves], ids, count=50)

    modulus = math.prod(twin.primes)
    corrected = [
        [
            reference.correct_mean(reference.from_digits(digits, twin.primes), 3, dropped_bits, modulus)
            for digits in half
        ]
        for half, dropped_bits in zip(halves, facts["dropped_bits"], strict=True)
    ]
    residues = _testing.ciphertext_residues(total, True).reshape(2, len(twin.primes), -1)
    for half, numbers in zip(residues, corrected, strict=True):
        for row, prime in zip(half, twin.primes, strict=True):
            assert [int(x) for x in row] == [number % prime for number in numbers]

    ring = ProductRing(twin.parameters.ring_degree, modulus)
    message = reference.decrypt(ring, *corrected, twin.key.secret)
    field_bits = facts["value_bits"] + facts["guard_bits"]
    sums = reference.read_sums(message, 50, modulus, facts["log2_scale"], field_bits)
    assert sums == [
        int(x) for x in sum(reference.quantise(u, twin.parameters.fraction_bits) for u in updates)
    ]


@given(
    number=st.integers(0, 97 * 101 - 1),
    dropped_bits=st.integers(0, 6),
)
def test_what_travels_of_a_number_is_near_it(number, dropped_bits):
    primes = (97, 101)
    digits = reference.to_digits(number, primes)
    assert reference.combine_residues([number % 97, number % 101], primes) == number
    assert reference.from_digits(digits, primes) == number
    restored = reference.restore_low_bits(reference.drop_low_bits(digits, dropped_bits), dropped_bits)
    error = restored[0] + 97 * restored[1] - number
    half = 2**dropped_bits / 2
    assert -half < error <= half if dropped_bits else error == 0


@pytest.mark.parametrize(
    ("batches", "dropped_bits", "expected"), [(1, 5, 10), (2, 5, 9), (7, 5, 7), (7, 0, 10)]
)
def test_correction_is_half_of_each_batch_rounded_down(batches, dropped_bits, expected):
    assert reference.correct_mean(10, batches, dropped_bits, 97) == expected
    assert reference.correct_mean(0, 2, 1, 97) == 96


def test_known_key_passes_the_core_s_own_checks():
    known_key = make_known_key(sf.ckks.Parameters())
    public_key = _core.CkksPublicKey.from_bytes(known_key.public_frame)
    assert public_key.to_bytes() == known_key.public_frame
    decryptor = _core.CkksDecryptor.import_secret(public_key, known_key.exported_secret)
    assert bytes(decryptor.export_secret()) == known_key.exported_secret
