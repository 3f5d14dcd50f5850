"""What one party can do with CKKS frames and an opened sum, written from docs/wire-format.md and docs/packings.md.

Only numbers that the attacker has go in: frames that it recorded or made itself, and what the opened sum says.
"""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.encryption import ckks

_HEAD = 48
_LIMB_BITS = 26
_CASTAGNOLI = 0x82F63B78


@functools.cache
def _checksums() -> tuple[int, ...]:
    """Return CRC-32C's table: of each byte."""
    table = []
    for value in range(256):
        checksum = value
        for _ in range(8):
            checksum = (checksum >> 1) ^ (_CASTAGNOLI if checksum & 1 else 0)
        table.append(checksum)
    return tuple(table)


def resealed(frame: bytes) -> bytes:
    """Give an altered frame of any scheme the checksum that fits it: there is no secret in that."""
    checksum, table = 0xFFFFFFFF, _checksums()
    for byte in memoryview(frame)[:-4]:
        checksum = (checksum >> 8) ^ table[(checksum ^ byte) & 0xFF]
    return frame[:-4] + struct.pack("<I", checksum ^ 0xFFFFFFFF)


class BatchFrame:
    """A batch that was recorded: its header, and the rows of its ciphertexts."""

    def __init__(self, frame: bytes, parameters: ckks.Parameters) -> None:
        self.facts: dict[str, Any] = parameters._facts
        self.primes: list[int] = list(self.facts["primes"])
        self.frame = frame
        # Parameters, round, positions id, number of values, flags, clients, the one frame id.
        self.values_at = _HEAD + 20 + 8 * len(self.primes) + 8 + 16
        self.count, self.weighted = struct.unpack_from("<QI", frame, self.values_at)
        self._start = self.values_at + 16 + 16
        self._degree = int(self.facts["ring_degree"])

    def _bits(self) -> list[tuple[int, int, int]]:
        """Half, prime and bits of a number, for each row of a ciphertext."""
        return [
            (half, place, prime.bit_length() - (dropped if place == 0 else 0))
            for half, dropped in enumerate(self.facts["dropped_bits"])
            for place, prime in enumerate(self.primes)
        ]

    def _row_bytes(self) -> list[int]:
        return [self._degree * bits // 8 for _, _, bits in self._bits()]

    def half(self, block: int, wanted: int) -> list[int]:
        """Return c0 (0) or c1 (1) of a ciphertext, the middle of what was dropped in its place."""
        offset = self._start + block * sum(self._row_bytes())
        rows = []
        for (half, _, bits), length in zip(self._bits(), self._row_bytes(), strict=True):
            if half == wanted:
                packed = np.frombuffer(self.frame, np.uint8, length, offset)
                digits = np.unpackbits(packed, bitorder="little").reshape(self._degree, bits)
                rows.append(digits.astype(np.uint64) @ (np.uint64(1) << np.arange(bits, dtype=np.uint64)))
            offset += length
        dropped = self.facts["dropped_bits"][wanted]
        return [
            from_digits(restore_low_bits([int(x) for x in fields], dropped), self.primes)
            for fields in zip(*rows, strict=True)
        ]

    def with_half(self, block: int, wanted: int, coefficients: list[int]) -> bytes:
        """Return the frame with another c0 or c1, and a checksum that fits."""
        dropped = self.facts["dropped_bits"][wanted]
        fields = [drop_low_bits(to_digits(x, self.primes), dropped) for x in coefficients]
        offset = self._start + block * sum(self._row_bytes())
        frame = bytearray(self.frame)
        for (half, place, bits), length in zip(self._bits(), self._row_bytes(), strict=True):
            if half == wanted:
                total = sum(field[place] << (bits * index) for index, field in enumerate(fields))
                frame[offset : offset + length] = total.to_bytes(length, "little")
            offset += length
        return resealed(bytes(frame))


def ask_for_secret(frame: bytes, parameters: ckks.Parameters, log2_size: int) -> bytes:
    """Add Delta 2^k to coefficient 0 of c1 of the first ciphertext: it then opens to 2^k s beside its values."""
    batch = BatchFrame(frame, parameters)
    first = batch.half(0, 1)
    first[0] = (first[0] + (1 << (batch.facts["log2_scale"] + log2_size))) % math.prod(batch.primes)
    return batch.with_half(0, 1, first)


def secret_from_sum(
    opened: NDArray[np.floating[Any]], parameters: ckks.Parameters, log2_size: int
) -> NDArray[np.int64]:
    """Read the ternary secret from the first N values of an opened sum of :func:`ask_for_secret`'s batch and others."""
    size = 2.0 ** (log2_size - parameters.fraction_bits)
    found: NDArray[np.int64] = np.rint(opened[: parameters.ring_degree] / size).astype(np.int64)
    return found


def open_batch(frame: bytes, parameters: ckks.Parameters, secret: NDArray[np.int64]) -> NDArray[np.int64]:
    """Decrypt one client's recorded batch with a secret: the quantised values (count,), or noise for another key's."""
    batch = BatchFrame(frame, parameters)
    facts, modulus = batch.facts, math.prod(batch.primes)
    in_one = parameters.values_per_ciphertext
    values: list[int] = []
    for block in range(-(-(batch.count + batch.weighted) // in_one)):
        product = _negacyclic(batch.half(block, 1), secret)
        message = [(a + int(b)) % modulus for a, b in zip(batch.half(block, 0), product, strict=True)]
        count = min(in_one, batch.count + batch.weighted - len(values))
        field_bits = parameters.value_bits + facts["guard_bits"]
        values += read_sums(message, count, modulus, facts["log2_scale"], field_bits)
    return np.array(values[: batch.count], dtype=np.int64)


def _negacyclic(coefficients: list[int], secret: NDArray[np.int64]) -> NDArray[Any]:
    """Multiply by a ternary polynomial modulo X^N + 1: in limbs, whose sums of N products fit 64 bits."""
    degree = len(coefficients)
    result = np.zeros(degree, dtype=object)
    for place in range(-(-max(coefficients).bit_length() // _LIMB_BITS)):
        shift = place * _LIMB_BITS
        limb = np.array([(x >> shift) & ((1 << _LIMB_BITS) - 1) for x in coefficients], dtype=np.int64)
        full = np.convolve(limb, secret)
        folded = full[:degree].copy()
        folded[: full.size - degree] -= full[degree:]
        result += folded.astype(object) << shift
    return result


def to_digits(number: int, primes: Sequence[int]) -> list[int]:
    """Write a number as digit0 + q0 digit1 + ..., each digit below its prime: how it travels."""
    digits = []
    for prime in primes:
        number, digit = divmod(number, prime)
        digits.append(digit)
    return digits


def from_digits(digits: Sequence[int], primes: Sequence[int]) -> int:
    """Return the number modulo the product of the primes; digits that are sums may exceed their primes."""
    number, place = 0, 1
    for digit, prime in zip(digits, primes, strict=True):
        number += digit * place
        place *= prime
    return number % place


def drop_low_bits(digits: Sequence[int], dropped_bits: int) -> list[int]:
    """Cut the lowest bits off the first digit: what a batch sends of one coefficient."""
    return [digits[0] >> dropped_bits, *digits[1:]]


def restore_low_bits(fields: Sequence[int], dropped_bits: int) -> list[int]:
    """Put the middle of what was cut off in its place, which is 1/2 too much on average."""
    middle = (1 << dropped_bits) >> 1
    return [(fields[0] << dropped_bits) + middle, *fields[1:]]


def read_sums(
    message: Sequence[int], count: int, modulus: int, log2_scale: int, field_bits: int
) -> list[int]:
    """Round the noise away and take the fields apart: value v of a block stands in field v // N of v % N."""
    degree = len(message)
    sums = [0] * (degree * -(-count // degree))
    for index, coefficient in enumerate(message):
        centred = coefficient - modulus if coefficient > modulus // 2 else coefficient
        rest = (centred + (1 << (log2_scale - 1))) >> log2_scale
        for place in range(index, len(sums), degree):
            field = rest & ((1 << field_bits) - 1)
            if field >> (field_bits - 1):
                field -= 1 << field_bits
            sums[place] = field
            rest = (rest - field) >> field_bits
    return sums[:count]
