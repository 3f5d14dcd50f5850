"""What a frame's secrets are bound to, each part of it with a value of its own: both schemes against their twins.

Frames are made by the public classes, with purposes, parts and masks, under one authority or several; the twins know
what docs/reference/wire-format.md says.
"""

from __future__ import annotations

import functools
import secrets
import struct
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

import shieldfl as sf
from encryption.product_ring import ProductRing
from encryption.wire_twin import identifier
from reference import ckks, enrolled
from reference import kahe as kahe_twin
from reference import pads as pads_twin
from shieldfl import _testing
from shieldfl.encryption.enrolment import open_total
from shieldfl.encryption.opening import sum_key

MANIFEST, AUTHORITY, EPOCH = bytes(range(32)), b"an authority's i", 7
ROUND, PURPOSE, PART = 4, "scores", 3
CLIENTS = (5, 2)
SHARED_BYTES = 32
# More ciphertexts than share a secret polynomial; the last one is not full.
KAHE_BLOCKS = 35
COMPARED_BLOCKS = (0, 1, 32, 33, 34)


class Frames:
    """Two clients' frames under one context, their total, and the twin's seeds of each."""

    def __init__(
        self, scheme: Any, parameters: Any, count: int, masked: bool, weighted: bool, authorities: int
    ) -> None:
        self.scheme, self.parameters = scheme, parameters
        rng = np.random.default_rng(count)
        size = count + 500 if masked else count
        chosen = np.ones(size, bool)
        if masked:
            chosen[rng.choice(size, 500, replace=False)] = False
        mask = sf.Mask.from_bool(chosen) if masked else None
        self.key = scheme.PublicKey.of_session(parameters, MANIFEST, AUTHORITY, EPOCH)
        self.context = enrolled.Context(
            scheme=scheme.__name__.rpartition(".")[2],
            parameter_id=parameters.id,
            manifest=MANIFEST,
            authority=AUTHORITY,
            epoch=EPOCH,
            round=ROUND,
            purpose=identifier(PURPOSE.encode()),
            part=PART,
            mask_id=identifier(bitmap(chosen) if masked else b"", struct.pack("<Q", size)),
            count=count,
            weighted=weighted,
        )
        weights = [0.75, 0.5] if weighted else [None, None]
        aggregator = scheme.Aggregator(self.key, purpose=PURPOSE, part=PART)
        self.shared = {client: secrets.token_bytes(SHARED_BYTES * authorities) for client in CLIENTS}
        self.frames: dict[int, bytes] = {}
        self.values: dict[int, list[int]] = {}
        for client, weight in zip(CLIENTS, weights, strict=True):
            update = rng.uniform(-1, 1, size).astype(np.float32)
            key = scheme.ClientKey.of_secret(self.key, client, self.shared[client])
            encryptor = scheme.Encryptor(key, purpose=PURPOSE, part=PART)
            self.frames[client] = encryptor.encrypt(update, mask, weight, round=ROUND).to_bytes()
            aggregator.add(self.frames[client], client)
            bits = parameters.fraction_bits
            integers = ckks.quantise(update[chosen].astype(np.float64), bits, weight or 1.0)
            self.values[client] = [int(value) for value in integers]
            if weight is not None:
                self.values[client].append(int(weight * 2**bits))
        self.total = aggregator.total()
        self.participants = self.total.participants

    def seeds(self, client: int, context: enrolled.Context | None = None) -> list[bytes]:
        """One for each authority."""
        frame_id = dict(self.participants)[client]
        shared, scheme, seeds = self.shared[client], self.context.scheme, []
        for first in range(0, len(shared), SHARED_BYTES):
            of_session = enrolled.session_key(
                scheme, shared[first : first + SHARED_BYTES], self.key.id, client
            )
            at_round = enrolled.ratchet(scheme, of_session, ROUND)
            seeds.append(enrolled.frame_seed(at_round, context or self.context, client, frame_id))
        return seeds

    def answers(self) -> list[bytearray]:
        """One of each authority, which knows its own secrets alone."""
        answers = []
        for first in range(0, len(self.shared[CLIENTS[0]]), SHARED_BYTES):
            keys = [
                self.scheme.ClientKey.of_secret(
                    self.key, client, self.shared[client][first : first + SHARED_BYTES]
                )
                for client, _ in self.participants
            ]
            for key in keys:
                key.advance_to(ROUND)
            answers.append(sum_key(self.key, self.total.request(), keys))
        return answers

    def check_answers_and_sums(self) -> list[bytearray]:
        """Of the core: answers are for the twin's list and context, and the total opens with all of them."""
        answers = self.answers()
        listed = enrolled.sum_digest(self.context, self.participants)
        assert [bytes(answer[64:96]) for answer in answers] == [listed] * len(answers)
        sums, weight_sum = open_total(self.key, self.total, answers)
        expected = np.sum(list(self.values.values()), axis=0) * 2.0**-self.parameters.fraction_bits
        np.testing.assert_array_equal(sums, expected[: self.context.count])
        assert weight_sum == (expected[-1] if self.context.weighted else None)
        return answers


def bitmap(chosen: np.ndarray) -> bytes:
    """Whole words of 64 positions, the first one lowest."""
    return np.packbits(np.pad(chosen, (0, -len(chosen) % 64)), bitorder="little").tobytes()


@functools.cache
def kahe_parameters() -> sf.kahe.Parameters:
    return sf.kahe.Parameters(max_clients=8, ring_degree=2048)


@functools.cache
def public_polynomial(u: int) -> list[int]:
    parameters = kahe_parameters()
    (prime,), degree = parameters._facts["primes"], parameters._facts["ring_degree"]
    row = kahe_twin.public_row(parameters.id, MANIFEST, u, 0, [prime], degree)
    return [int(x) for x in _testing.transform(np.array(row, dtype=np.uint64), prime, True)]


@functools.cache
def secret_polynomial(seed: bytes, v: int) -> list[int]:
    return kahe_twin.sample_small(ckks.chacha20_words(seed, v), kahe_parameters()._facts["ring_degree"])


def unpacked(payload: bytes, bits: int) -> list[int]:
    number = int.from_bytes(payload, "little")
    return [
        (number >> place) & ((1 << bits) - 1) for place in range(0, 8 * len(payload) // bits * bits, bits)
    ]


@pytest.mark.parametrize(
    ("authorities", "masked", "weighted"),
    [(1, False, True), (1, True, False), (2, True, True), (3, True, False)],
)
def test_each_ciphertext_of_kahe_is_hidden_by_the_twin_s_polynomials(authorities, masked, weighted):
    parameters = kahe_parameters()
    facts, per_block = parameters._facts, parameters.values_per_ciphertext
    (modulus,), degree = facts["primes"], facts["ring_degree"]
    dropped = facts["dropped_bits"]
    bits = modulus.bit_length() - dropped
    block_bytes = degree * bits // 8
    count = (KAHE_BLOCKS - 1) * per_block + 100
    frames = Frames(sf.kahe, parameters, count, masked, weighted, authorities)
    multiply = ProductRing(degree, modulus).multiply
    for client in CLIENTS:
        payload = frames.frames[client][-4 - KAHE_BLOCKS * block_bytes : -4]
        seeds, values = frames.seeds(client), frames.values[client]
        for block in COMPARED_BLOCKS:
            u, v = kahe_twin.polynomials_of_block(block)
            fields = unpacked(payload[block * block_bytes : (block + 1) * block_bytes], bits)
            # The middle of what has these upper bits: the rest is noise.
            coefficients = [(field << dropped) + (1 << dropped >> 1) for field in fields]
            parts = [secret_polynomial(seed, v) for seed in seeds]
            secret = [sum(of_place) % modulus for of_place in zip(*parts, strict=True)]
            hidden_by = multiply(public_polynomial(u), secret)
            noisy = [(c - h) % modulus for c, h in zip(coefficients, hidden_by, strict=True)]
            opened = kahe_twin.read_sums(
                noisy,
                facts["values_per_coefficient"],
                modulus,
                facts["log2_scale"],
                facts["value_bits"] + facts["guard_bits"],
            )
            own = values[block * per_block : (block + 1) * per_block]
            assert opened == own + [0] * (per_block - len(own))

    # An answer is the sum of the secrets that its authority knows, one polynomial after the other.
    most = 42 * len(CLIENTS)
    for authority, answer in enumerate(frames.check_answers_and_sums()):
        stated = unpacked(bytes(answer[128:-4]), (2 * most).bit_length())
        of_clients = [
            [x for v in range(2) for x in secret_polynomial(frames.seeds(client)[authority], v)]
            for client in CLIENTS
        ]
        assert [x - most for x in stated] == [sum(both) for both in zip(*of_clients, strict=True)]


# What a word has: few bits, 32, more than 32; all that any sum takes, and fewer, beside which no weights travel.
@pytest.mark.parametrize(
    ("authorities", "masked", "weighted", "max_clients", "value_bits", "field_bits"),
    [
        *((authorities, False, True, 8, 24, 27) for authorities in (1, 2, 3)),
        *((authorities, True, False, 5, 12, 15) for authorities in (1, 2, 3)),
        (1, True, True, 100, 40, 47),
        (3, False, False, 64, 26, 32),
        (1, True, False, 1000, 13, 15),
    ],
)
def test_frames_of_pads_are_the_twin_s_for_every_context(
    authorities, masked, weighted, max_clients, value_bits, field_bits
):
    parameters = sf.pads.Parameters(
        max_clients=max_clients, value_bits=value_bits, fraction_bits=6, sum_bits=field_bits
    )
    count = 2 * parameters.values_per_ciphertext - 700
    frames = Frames(sf.pads, parameters, count, masked, weighted, authorities)
    for client in CLIENTS:
        words = pads_twin.encrypt(frames.values[client], frames.seeds(client), field_bits)
        payload = pads_twin.pack(words, field_bits)
        assert frames.frames[client][-4 - len(payload) : -4] == payload
        assert pads_twin.unpack(payload, field_bits) == words
    for authority, answer in enumerate(frames.check_answers_and_sums()):
        assert struct.unpack_from("<IIQ", answer, 48) == (len(CLIENTS), field_bits, 2 * pads_twin.BLOCK_WORDS)
        drawn = [
            [x for block in (0, 1) for x in library_pads(frames.seeds(client)[authority], block, field_bits)]
            for client in CLIENTS
        ]
        stated = pads_twin.unpack(bytes(answer[128:-4]), field_bits)
        assert stated == [sum(both) % (1 << field_bits) for both in zip(*drawn, strict=True)]


def library_pads(seed: bytes, block: int, field_bits: int) -> list[int]:
    """Draw a block's pads with the key stream of a library: a counter of 32 bits, a nonce of the block's number."""
    nonce = struct.pack("<IIQ", 0, 0, block)
    width = 4 if field_bits <= 32 else 8
    stream = Cipher(algorithms.ChaCha20(seed, nonce), mode=None).encryptor().update(bytes(1024 * width))
    words = (int.from_bytes(stream[width * i : width * (i + 1)], "little") for i in range(1024))
    return [word & ((1 << field_bits) - 1) for word in words]


@pytest.mark.parametrize("field_bits", [15, 30, 32, 33, 47])
def test_pads_are_the_key_stream_of_another_library(field_bits):
    seed = bytes(range(100, 132))
    for block in (0, 1, 70_000):
        assert pads_twin.block_pads(seed, block, field_bits) == library_pads(seed, block, field_bits)
