"""Key-additive encryption against its slow twin: frames byte for byte, and sums opened by exact arithmetic."""

from __future__ import annotations

import functools
import struct

import numpy as np
import pytest

from encryption.product_ring import ProductRing
from reference import ckks, enrolled
from reference import kahe as twin
from shieldfl import _core, _testing
from shieldfl.encryption import kahe
from shieldfl.encryption.enrolment import open_total
from shieldfl.encryption.opening import sum_key
from shieldfl.encryption.registry import purpose_id

CLIENTS, ROUND, SEED = 3, 2, 400
MANIFEST, AUTHORITY, EPOCH = bytes(range(32)), b"an authority's i", 7


class TwinSession:
    """A session in plain Python."""

    def __init__(self, parameters: kahe.Parameters) -> None:
        self.key = kahe.PublicKey.of_session(parameters, MANIFEST, AUTHORITY, EPOCH)
        self.facts = parameters._facts
        self.primes = self.facts["primes"]
        self.modulus = int(np.prod([int(prime) for prime in self.primes], dtype=object))
        self.degree = self.facts["ring_degree"]
        self.field_bits = self.facts["value_bits"] + self.facts["guard_bits"]
        self.multiply = ProductRing(self.degree, self.modulus).multiply

    def polynomial(self, u: int) -> list[int]:
        rows = [
            _testing.transform(
                np.array(
                    twin.public_row(self.key.parameters.id, MANIFEST, u, index, self.primes, self.degree),
                    dtype=np.uint64,
                ),
                prime,
                True,
            )
            for index, prime in enumerate(self.primes)
        ]
        return [ckks.combine_residues(residues, self.primes) for residues in zip(*rows, strict=True)]

    def context(self, count: int, weighted: bool, mask_id: bytes) -> enrolled.Context:
        return enrolled.Context(
            "kahe",
            self.key.parameters.id,
            MANIFEST,
            AUTHORITY,
            EPOCH,
            ROUND,
            bytes(16),
            0,
            mask_id,
            count,
            weighted,
        )

    def seed(self, client: int, context: enrolled.Context, frame_id: bytes) -> bytes:
        secret = bytes([client + 1]) + bytes(31)
        key = enrolled.ratchet("kahe", enrolled.session_key("kahe", secret, self.key.id, client), ROUND)
        return enrolled.frame_seed(key, context, client, frame_id)

    def secret(self, seed: bytes, v: int) -> list[int]:
        return twin.sample_small(ckks.chacha20_words(seed, v), self.degree)

    def payload(self, coefficients: list[int]) -> bytes:
        """One ciphertext of a batch, bit after bit."""
        rows: list[list[int]] = [[] for _ in self.primes]
        for coefficient in coefficients:
            fields = ckks.drop_low_bits(ckks.to_digits(coefficient, self.primes), self.facts["dropped_bits"])
            for row, field in zip(rows, fields, strict=True):
                row.append(field)
        packed = b""
        for index, (row, prime) in enumerate(zip(rows, self.primes, strict=True)):
            bits = prime.bit_length() - (self.facts["dropped_bits"] if index == 0 else 0)
            number = sum(field << (place * bits) for place, field in enumerate(row))
            packed += number.to_bytes(-(-len(row) * bits // 8), "little")
        return packed


@functools.cache
def session_of(degree: int, sum_bits: int | None = None) -> TwinSession:
    settings = {"max_clients": 5, "value_bits": 12, "fraction_bits": 6}
    return TwinSession(kahe.Parameters(**settings, ring_degree=degree, sum_bits=sum_bits))


# Each ring, and each kind of sum; of the rest, on the larger rings, the twin takes seconds.
@pytest.mark.parametrize(
    ("degree", "weighted", "sum_bits"),
    [
        (2048, False, None),
        (2048, False, 13),
        (2048, True, None),
        (4096, True, None),
        pytest.param(8192, False, None, marks=pytest.mark.slow),
        pytest.param(4096, False, None, marks=pytest.mark.slow),
        pytest.param(8192, True, None, marks=pytest.mark.slow),
    ],
)
def test_frames_are_the_twin_s_byte_for_byte_and_their_sum_opens(degree, weighted, sum_bits):
    session = session_of(degree, sum_bits)
    rng = np.random.default_rng(session.degree)
    count = session.facts["values_per_ciphertext"] - 3 if weighted else 50
    updates = rng.uniform(-20, 20, (CLIENTS, count))
    weights = [1.0, 0.5, 0.25] if weighted else [None] * CLIENTS
    a = session.polynomial(0)
    frames, summed, secrets = [], [0] * session.degree, [0] * session.degree
    listed = []
    expected = np.zeros(count, dtype=np.int64)
    for client in range(CLIENTS):
        frame = _testing.kahe_encrypt_insecure(
            session.key.to_bytes(),
            [client + 1],
            client,
            ROUND,
            updates[client],
            weights[client],
            SEED + client,
        )
        frames.append(frame)
        batch = kahe.CiphertextBatch.from_bytes(frame)
        ((number, frame_id),) = batch.parsed.participants
        assert number == client
        assert frame_id == ckks.test_seed(SEED + client, 0)[:16]
        listed.append((number, frame_id))
        context = session.context(count, weighted, batch.parsed.mask_id)
        secret = session.secret(session.seed(client, context, frame_id), 0)
        error = twin.sample_small(ckks.chacha20_words(ckks.test_seed(SEED + client, 1), 0), session.degree)
        integers = ckks.quantise(updates[client], 6, weights[client] or 1.0)
        expected += integers
        values = [int(value) for value in integers]
        if weighted:
            values.append(round(weights[client] * 2**6))
        message = twin.pack(values, session.degree, session.facts["log2_scale"], session.field_bits)
        coefficients = twin.encrypt(a, secret, error, message, session.modulus, session.multiply)
        payload = session.payload(coefficients)
        assert frame[-4 - len(payload) : -4] == payload
        summed = [s + c for s, c in zip(summed, coefficients, strict=True)]
        secrets = [s + x for s, x in zip(secrets, secret, strict=True)]

    # Opened by exact arithmetic, as nobody drops bits here, and by the core.
    noisy = [
        (s - p) % session.modulus
        for s, p in zip(summed, session.multiply(a, [x % session.modulus for x in secrets]), strict=True)
    ]
    fields = session.facts["values_per_coefficient"]
    opened = twin.read_sums(noisy, fields, session.modulus, session.facts["log2_scale"], session.field_bits)
    assert opened[:count] == expected.tolist()
    # For the purpose of test frames, which is all zeros.
    aggregator = _core.KaheAggregator(session.key._core, bytes(16), 0, ROUND, None, None, 1)
    for frame in frames:
        aggregator.add_bytes(frame, None)
    total = kahe.Total(aggregator.total())
    keys = [kahe.ClientKey.of_secret(session.key, c, bytes([c + 1]) + bytes(31)) for c in range(CLIENTS)]
    for key in keys:
        key.advance_to(ROUND)
    answer = sum_key(session.key, total.request(), keys)
    sums, weight_sum = open_total(session.key, total, answer)
    np.testing.assert_array_equal(sums, expected / 2**6)
    assert weight_sum == (1.75 if weighted else None)
    # The answer is the sum of the secrets, for this list.
    head = struct.unpack_from("<IIQ", answer, 48)
    assert head == (CLIENTS, session.degree, session.degree)
    assert bytes(answer[64:96]) == enrolled.sum_digest(context, listed)
    bits = (2 * 42 * CLIENTS).bit_length()
    packed = int.from_bytes(answer[128:-4], "little")
    stated = [((packed >> (bits * i)) & ((1 << bits) - 1)) - 42 * CLIENTS for i in range(session.degree)]
    assert stated == secrets


def test_purposes_have_ids_of_their_own():
    assert purpose_id("update") != purpose_id("votes")


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("leaves", "more"), [(0, 0), (0, 1), (1, -1), (1, 0), (1, 1), (8, 0), (21, 300)])
def test_digests_are_those_of_hashlib(leaves, more, threads):
    size = leaves * enrolled.LEAF_BYTES + more
    frame = np.random.default_rng(size).bytes(size)
    assert _core.total_digest(frame, threads) == enrolled.total_digest(frame)
