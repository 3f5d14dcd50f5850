"""Frames written by hand from docs/reference/wire-format.md, without the core, and a key that everybody can make."""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from reference import ckks as reference
from shieldfl import _testing
from shieldfl.encryption import ckks

Half = list[list[int]]
"""The digits of each coefficient of c0 or c1."""
Ciphertext = list[Half]
"""c0 and c1."""


def _crc32c_of_byte(crc: int) -> int:
    for _ in range(8):
        crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc


_CRC32C_OF_BYTES = [_crc32c_of_byte(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC32C_OF_BYTES[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def identifier(data: bytes, key: bytes = b"") -> bytes:
    return hashlib.blake2b(data, digest_size=16, key=key).digest()


def frame(kind: int, parameter_id: bytes, key_id: bytes, body: bytes) -> bytes:
    head = b"SHFL" + struct.pack("<HHQ", 2, kind, len(body)) + parameter_id + key_id
    return head + body + struct.pack("<I", crc32c(head + body))


def reseal(data: bytes) -> bytes:
    """Give an altered frame the checksum that fits it."""
    return data[:-4] + struct.pack("<I", crc32c(data[:-4]))


def pack(residues: Sequence[int], bits: int) -> bytes:
    total = sum(int(residue) << (bits * i) for i, residue in enumerate(residues))
    return total.to_bytes((len(residues) * bits + 7) // 8, "little")


def encode_parameters(parameters: ckks.Parameters) -> bytes:
    facts = parameters._facts
    packing = 1 if facts["packing"] == "exact" else 2
    primes = facts["primes"]
    return (
        bytes([packing, facts["value_bits"], facts["fraction_bits"], facts["values_per_coefficient"]])
        + bytes([facts["log2_scale"], facts["log2_flooding"], *facts["dropped_bits"], len(primes), 0, 0, 0])
        + struct.pack("<II", facts["max_clients"], facts["ring_degree"])
        + struct.pack(f"<{len(primes)}Q", *primes)
    )


def ciphertext_frame(
    kind: int,
    key: KnownKey,
    ciphertexts: list[Ciphertext],
    frame_ids: list[bytes],
    *,
    count: int,
    weighted: bool = False,
    round: int = 0,
) -> bytes:
    """Write a batch (kind 3) or a total (kind 4) of ``count`` values, at all positions that there are."""
    facts = key.parameters._facts
    encoded = encode_parameters(key.parameters)
    positions_id = identifier(b"", key=struct.pack("<Q", count))
    body = encoded + struct.pack("<Q", round) + positions_id
    body += struct.pack("<QII", count, weighted, len(frame_ids)) + b"".join(frame_ids)
    for halves in ciphertexts:
        for half, dropped_bits in zip(halves, facts["dropped_bits"], strict=True):
            left_out = dropped_bits if kind == 3 else 0
            fields = [reference.drop_low_bits(digits, left_out) for digits in half]
            for place, prime in enumerate(facts["primes"]):
                bits = prime.bit_length() - (left_out if place == 0 else 0)
                body += pack([field[place] for field in fields], bits)
    return frame(kind, identifier(encoded), key.public_frame[32:48], body)


def digits_of(residues: list[list[int]], primes: list[int]) -> Half:
    """Turn the residues of one half, a row for each prime, into the digits of every coefficient."""
    return [
        reference.to_digits(reference.combine_residues(column, primes), primes)
        for column in zip(*residues, strict=True)
    ]


def sum_of(batches: list[Ciphertext], parameters: ckks.Parameters) -> Ciphertext:
    """Add what has travelled of several clients' ciphertexts, as an aggregator does."""
    primes = parameters._facts["primes"]
    halves = []
    for index, dropped_bits in enumerate(parameters._facts["dropped_bits"]):
        sums = []
        for column in zip(*(batch[index] for batch in batches), strict=True):
            travelled = [reference.drop_low_bits(digits, dropped_bits) for digits in column]
            restored = [reference.restore_low_bits(fields, dropped_bits) for fields in travelled]
            digit_sums = [sum(digits) for digits in zip(*restored, strict=True)]
            sums.append(reference.to_digits(reference.from_digits(digit_sums, primes), primes))
        halves.append(sums)
    return halves


@dataclass(frozen=True)
class KnownKey:
    """A key pair from predictable randomness: nothing that is encrypted under it is secret."""

    parameters: ckks.Parameters
    public_frame: bytes
    exported_secret: bytes
    secret: list[int]
    error: list[int]
    uniform: list[list[int]]


@functools.cache
def make_known_key(parameters: ckks.Parameters, seed: int = 1) -> KnownKey:
    """Make secret, error and uniform half from test seeds, and the frame of the public key from its layout."""
    degree, primes = parameters.ring_degree, parameters._facts["primes"]
    words = reference.chacha20_words(reference.test_seed(seed, 0), 0)
    secret = reference.sample_ternary(words, degree)
    error = reference.sample_error(words, degree)
    rows0, rows1, uniform = [], [], []
    for prime in primes:
        half1 = np.array([next(words) % prime for _ in range(degree)], dtype=np.uint64)
        secret_row = _testing.transform(np.mod(secret, prime).astype(np.uint64), prime, False)
        error_row = _testing.transform(np.mod(error, prime).astype(np.uint64), prime, False)
        products = (int(a) * int(s) + int(e) for a, s, e in zip(half1, secret_row, error_row, strict=True))
        rows0.append(np.array([-product % prime for product in products], dtype=np.uint64))
        rows1.append(half1)
        uniform.append([int(x) for x in _testing.transform(half1, prime, True)])
    encoded = encode_parameters(parameters)
    parameter_id = identifier(encoded)
    key_id = identifier(parameter_id + b"".join(row.tobytes() for row in rows0 + rows1))
    packed = b"".join(
        pack(row, prime.bit_length())
        for rows in (rows0, rows1)
        for row, prime in zip(rows, primes, strict=True)
    )
    return KnownKey(
        parameters,
        frame(2, parameter_id, key_id, encoded + packed),
        secret.astype(np.int8).tobytes() + bytes(32),
        [int(x) for x in secret],
        [int(x) for x in error],
        uniform,
    )
