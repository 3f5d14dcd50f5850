"""An independent SEAL (4.4, from Python) opens what we encrypt; we sum and open what it encrypts.

SEAL reserves the last prime of a chain for key switching. Its context here therefore has one prime more than
ours where we use two, at no security level; the keys are ours, lifted to that prime.
"""

from __future__ import annotations

import struct

import numpy as np
import pytest
import seal

import shieldfl as sf
from encryption.wire_twin import make_known_key
from reference import ckks as reference
from shieldfl import _core, _testing

SPARE_PRIME = 0xFFFFFFFFFFC0001  # 60 bits, 1 modulo 2^18


def seal_context(degree, primes):
    parameters = seal.EncryptionParameters(seal.scheme_type.ckks)
    parameters.set_poly_modulus_degree(degree)
    chain = primes if len(primes) == 1 else [*primes, SPARE_PRIME]
    parameters.set_coeff_modulus([seal.Modulus(prime) for prime in chain])
    level = seal.sec_level_type.tc128 if len(primes) == 1 else seal.sec_level_type.none
    context = seal.SEALContext(parameters, True, level)
    assert context.parameters_set(), context.parameter_error_message()
    return context, chain


class Baseline:
    """The same key pair, on SEAL's side."""

    def __init__(self, parameters):
        self.ours = make_known_key(parameters, seed=11)
        self.degree = parameters.ring_degree
        self.primes = parameters._facts["primes"]
        self.context, self.chain = seal_context(self.degree, self.primes)
        generator = seal.KeyGenerator(self.context)
        secret = b"".join(
            _testing.transform(np.mod(self.ours.secret, prime).astype(np.uint64), prime, False).tobytes()
            for prime in self.chain
        )
        template = generator.secret_key().to_string()
        self.secret_key = self.context.from_secret_str(template[: -len(secret)] + secret)
        self.decryptor = seal.Decryptor(self.context, self.secret_key)
        public_key = seal.PublicKey()
        seal.KeyGenerator(self.context, self.secret_key).create_public_key(public_key)
        self.encryptor = seal.Encryptor(self.context, public_key)

    def transform(self, rows, inverse):
        return np.stack(
            [
                _testing.transform(np.ascontiguousarray(row), prime, inverse)
                for row, prime in zip(rows, self.primes, strict=True)
            ]
        )

    def load(self, residues, scale):
        """Put our residues (2, primes, N), coefficient form, into a ciphertext of SEAL's."""
        rows = np.concatenate([self.transform(half, False) for half in residues])
        data = self.encryptor.encrypt_zero().to_string()
        payload = rows.astype(np.uint64).tobytes()
        loaded = seal.Ciphertext()
        loaded.load_bytes(self.context, data[: -len(payload)] + payload)
        loaded.scale(scale)
        return loaded

    def residues_of(self, serialised, polynomials):
        count = polynomials * len(self.primes) * self.degree
        values = np.array(struct.unpack(f"<{count}Q", serialised[-8 * count :]), dtype=np.uint64)
        rows = values.reshape(polynomials, len(self.primes), self.degree)
        return np.stack([self.transform(half, True) for half in rows])

    def decrypt(self, cipher):
        plain = seal.Plaintext()
        self.decryptor.decrypt(cipher, plain)
        return plain


def integers_of(rows, primes):
    """The coefficients that have these residues, centred."""
    modulus = int(np.prod([int(p) for p in primes], dtype=object))
    values = [0] * rows.shape[1]
    for row, prime in zip(rows, primes, strict=True):
        rest = modulus // prime
        factor = rest * pow(rest, -1, prime)
        values = [(value + int(r) * factor) % modulus for value, r in zip(values, row, strict=True)]
    return values, modulus


# Ring degree, bits, bits behind the point: one prime and two, one value in a coefficient and several.
EXACT_SETTINGS = ((2048, 24, 20), (2048, 4, 1), (4096, 24, 20), (4096, 40, 30))


@pytest.fixture(scope="module", params=EXACT_SETTINGS, ids=str)
def exact(request):
    degree, value_bits, fraction_bits = request.param
    return Baseline(
        sf.ckks.Parameters(
            ring_degree=degree, max_clients=8, value_bits=value_bits, fraction_bits=fraction_bits
        )
    )


@pytest.fixture(scope="module")
def slots():
    return Baseline(sf.ckks.Parameters(packing="slots", max_clients=8))


def read_block(baseline, rows, count):
    facts = baseline.ours.parameters._facts
    values, modulus = integers_of(rows, baseline.primes)
    field_bits = facts["value_bits"] + facts["guard_bits"]
    return reference.read_sums(values, count, modulus, facts["log2_scale"], field_bits)


def random_integers(baseline, seed):
    """Quantised values from the whole range, as many as one ciphertext holds."""
    facts = baseline.ours.parameters._facts
    top = 2 ** (facts["value_bits"] - 1) - 1
    return np.random.default_rng(seed).integers(-top, top + 1, facts["values_per_ciphertext"])


def as_values(baseline, integers):
    return integers / 2.0**baseline.ours.parameters.fraction_bits


def read_by_seal(baseline, frame, count, *, total=False):
    """Let SEAL decrypt the one ciphertext of a frame, and read its fields."""
    residues = _testing.ciphertext_residues(frame, total).reshape(2, len(baseline.primes), baseline.degree)
    plain = baseline.decrypt(baseline.load(residues, 1.0))
    return read_block(baseline, baseline.residues_of(plain.to_bytes(), 1)[0], count)


def test_seal_decrypts_our_exact_total(exact):
    """Of three clients: what lost its lowest bits is half too much for each, which reading corrects."""
    updates = [random_integers(exact, seed) for seed in range(3)]
    aggregator = sf.ckks.Aggregator(sf.ckks.PublicKey.from_bytes(exact.ours.public_frame))
    for seed, integers in enumerate(updates):
        values = as_values(exact, integers)
        aggregator.add(_testing.encrypt_insecure(exact.ours.public_frame, values, seed=seed))
    total = aggregator.total().to_bytes()
    assert read_by_seal(exact, total, len(updates[0]), total=True) == sum(updates).tolist()


def test_we_sum_and_open_what_seal_encrypts(exact):
    """SEAL encrypts a message of our packing; the batch is added to one of our own."""
    parameters = exact.ours.parameters
    facts = parameters._facts
    ours, theirs = random_integers(exact, 1), random_integers(exact, 2)
    field_bits = facts["value_bits"] + facts["guard_bits"]
    message = reference.pack_exact(theirs.tolist(), exact.degree, facts["log2_scale"], field_bits)

    residues = exact.residues_of(exact.encryptor.encrypt_zero().to_string(), 2)
    for index, prime in enumerate(exact.primes):
        shifted = [(int(c) + m) % prime for c, m in zip(residues[0, index], message, strict=True)]
        residues[0, index] = np.array(shifted, dtype=np.uint64)
    own = _testing.encrypt_insecure(exact.ours.public_frame, as_values(exact, ours), seed=4)
    foreign = _testing.batch_from_residues(own, residues.reshape(-1).astype(np.uint64), 5)

    public_key = sf.ckks.PublicKey.from_bytes(exact.ours.public_frame)
    aggregator = sf.ckks.Aggregator(public_key)
    aggregator.add(own)
    aggregator.add(foreign)
    decryptor = _core.CkksDecryptor.import_secret(public_key._core, exact.ours.exported_secret)
    sums, _ = decryptor.open(aggregator.total().parsed)
    np.testing.assert_array_equal(sums, as_values(exact, ours + theirs))


def test_seal_decodes_our_slots_total(slots):
    updates = [np.random.default_rng(seed).uniform(-7, 7, slots.degree // 2) for seed in range(3)]
    aggregator = sf.ckks.Aggregator(sf.ckks.PublicKey.from_bytes(slots.ours.public_frame))
    for seed, update in enumerate(updates):
        aggregator.add(_testing.encrypt_insecure(slots.ours.public_frame, update, seed=seed))
    residues = _testing.ciphertext_residues(aggregator.total().to_bytes(), True)
    scale = 2.0 ** slots.ours.parameters._facts["log2_scale"]
    plain = slots.decrypt(slots.load(residues.reshape(2, len(slots.primes), slots.degree), scale))
    decoded = seal.CKKSEncoder(slots.context).decode(plain)
    expected = sum(np.rint(update * 2**20) for update in updates) / 2**20
    np.testing.assert_allclose(decoded[: len(expected)], expected, atol=2**-21)
