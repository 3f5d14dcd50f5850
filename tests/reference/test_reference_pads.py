"""One-time pads against their slow twin, and against ChaCha20 of another library."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from reference import ckks, enrolled
from reference import pads as twin
from shieldfl import _core, _testing
from shieldfl.encryption import pads
from shieldfl.encryption.answers import open_total
from shieldfl.encryption.opening import sum_key

CLIENTS, ROUND, SEED = 3, 2, 400
MANIFEST, AUTHORITY, EPOCH = bytes(range(32)), b"an authority's i", 7
FRACTION_BITS = 6
# What a word has: few bits, 32, more than 32; all that any sum takes, and fewer.
NARROW = [(1000, 13, 15)]
SHAPES = [(5, 12, 15), (64, 26, 32), (100, 40, 47), *NARROW]


def library_pads(seed: bytes, block: int, field_bits: int) -> list[int]:
    """Draw a block's pads with the key stream of a library: a counter of 32 bits, a nonce of the block's number."""
    nonce = struct.pack("<IIQ", 0, 0, block)
    width = 4 if field_bits <= 32 else 8
    stream = Cipher(algorithms.ChaCha20(seed, nonce), mode=None).encryptor().update(bytes(1024 * width))
    return [
        int.from_bytes(stream[width * i : width * (i + 1)], "little") & ((1 << field_bits) - 1)
        for i in range(1024)
    ]


@pytest.mark.parametrize("field_bits", [15, 30, 32, 33, 47])
def test_pads_are_the_key_stream_of_another_library(field_bits):
    seed = bytes(range(100, 132))
    for block in (0, 1, 70_000):
        assert twin.block_pads(seed, block, field_bits) == library_pads(seed, block, field_bits)


@pytest.mark.every_run("100-40-47-True-1", "64-26-32-False-3", "5-12-15-True-2", "1000-13-15-False-1")
@pytest.mark.parametrize("authorities", [1, 2, 3])
@pytest.mark.parametrize(
    ("max_clients", "value_bits", "field_bits", "weighted"),
    [
        (*shape, weighted)
        for shape in SHAPES
        for weighted in (False, True)
        # Weights do not travel beside sums of fewer bits than any takes.
        if not (weighted and shape in NARROW)
    ],
)
def test_frames_are_the_twin_s_byte_for_byte_and_their_sum_opens(
    max_clients, value_bits, field_bits, weighted, authorities
):
    parameters = pads.Parameters(
        max_clients=max_clients, value_bits=value_bits, fraction_bits=FRACTION_BITS, sum_bits=field_bits
    )
    key = pads.PublicKey.of_session(parameters, MANIFEST, AUTHORITY, EPOCH)
    rng = np.random.default_rng(value_bits)
    count = 2 * parameters.values_per_ciphertext - (1 if weighted else 700)
    updates = rng.uniform(-20, 20, (CLIENTS, count))
    weights = [1.0, 0.5, 0.25] if weighted else [None] * CLIENTS
    secrets = [[client + 1, client + 101, client + 201][:authorities] for client in range(CLIENTS)]
    expected = np.zeros(count, dtype=np.int64)
    aggregator = _core.PadsAggregator(key._core, bytes(16), 0, ROUND, None, None, 1)
    summed: list[int] = []
    drawn = [[0] * (2 * twin.BLOCK_WORDS) for _ in range(authorities)]
    for client in range(CLIENTS):
        frame = _testing.pads_encrypt_insecure(
            key.to_bytes(), secrets[client], client, ROUND, updates[client], weights[client], SEED + client
        )
        aggregator.add_bytes(frame, client)
        batch = pads.CiphertextBatch.from_bytes(frame)
        ((number, frame_id),) = batch.parsed.participants
        assert (number, frame_id) == (client, ckks.test_seed(SEED + client, 0)[:16])
        context = enrolled.Context(
            "pads", parameters.id, MANIFEST, AUTHORITY, EPOCH, ROUND, bytes(16), 0, batch.parsed.mask_id, count,
            weighted,
        )  # fmt: skip
        seeds = []
        for secret in secrets[client]:
            of_session = enrolled.session_key("pads", bytes([secret]) + bytes(31), key.id, client)
            at_round = enrolled.ratchet("pads", of_session, ROUND)
            seeds.append(enrolled.frame_seed(at_round, context, client, frame_id))
        integers = ckks.quantise(updates[client], FRACTION_BITS, weights[client] or 1.0)
        expected += integers
        values = [int(value) for value in integers]
        if weighted:
            values.append(round(weights[client] * 2**FRACTION_BITS))
        words = twin.encrypt(values, seeds, field_bits)
        payload = twin.pack(words, field_bits)
        assert frame[-4 - len(payload) : -4] == payload
        assert twin.unpack(payload, field_bits) == words
        summed = [sum(both) for both in zip(summed, words, strict=True)] if summed else words
        for sums, seed in zip(drawn, seeds, strict=True):
            both = [*library_pads(seed, 0, field_bits), *library_pads(seed, 1, field_bits)]
            sums[:] = [old + new for old, new in zip(sums, both, strict=True)]

    # Opened by the twin with pads of another library, and by the core with its own.
    everybody_s = [sum(of_word) for of_word in zip(*drawn, strict=True)]
    assert twin.open_sums(summed, everybody_s, count + weighted, field_bits)[:count] == expected.tolist()
    total = pads.Total(aggregator.total())
    answers = []
    for authority, of_authority in enumerate(drawn):
        keys = [
            pads.ClientKey.of_secret(key, client, bytes([secrets[client][authority]]) + bytes(31))
            for client in range(CLIENTS)
        ]
        for one in keys:
            one.advance_to(ROUND)
        answer = sum_key(key, total.request(), keys)
        answers.append(answer)
        assert struct.unpack_from("<IIQ", answer, 48) == (CLIENTS, field_bits, 2 * twin.BLOCK_WORDS)
        stated = twin.unpack(bytes(answer[128:-4]), field_bits)
        assert stated == [pad % (1 << field_bits) for pad in of_authority]
    sums, weight_sum = open_total(key, total, answers)
    np.testing.assert_array_equal(sums, expected / 2**FRACTION_BITS)
    assert weight_sum == (1.75 if weighted else None)
