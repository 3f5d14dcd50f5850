"""CKKS frames as an attacker reads and alters them.

Formats are those of docs/reference/wire-format.md and docs/explanation/packings.md. Nothing here needs torch:
the slow twin of the core's kernels, in the tests, reads frames by it, too.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.encryption import ckks

if TYPE_CHECKING:
    from shieldfl.lab.audit.views.observed_update import Counts

_HEAD = 48
_LIMB_BITS = 26
_CASTAGNOLI = 0x82F63B78


def resealed(frame: bytes) -> bytes:
    """Give an altered frame of any scheme the checksum that fits it, which needs no secret."""
    checksum = 0xFFFFFFFF
    for byte in frame[:-4]:
        checksum ^= byte
        for _ in range(8):
            checksum = (checksum >> 1) ^ (_CASTAGNOLI if checksum & 1 else 0)
    return frame[:-4] + struct.pack("<I", checksum ^ 0xFFFFFFFF)


class BatchFrame:
    def __init__(self, frame: bytes, parameters: ckks.Parameters) -> None:
        self.facts: dict[str, Any] = parameters._facts
        self.primes: list[int] = list(self.facts["primes"])
        self.frame = frame
        # Parameters, round, positions id, number of values, flags, clients, the one frame id.
        self.values_at = _HEAD + 20 + 8 * len(self.primes) + 8 + 16
        self.count, self.weighted = struct.unpack_from("<QI", frame, self.values_at)
        self._start = self.values_at + 16 + 16
        self._degree = int(self.facts["ring_degree"])

    def _rows(self, block: int, wanted: int) -> Iterator[tuple[int, int, slice]]:
        """Yield for each row of a ciphertext's c0 (0) or c1 (1) its place, a number's bits, and its bytes."""
        rows = [
            (half, place, prime.bit_length() - (dropped if place == 0 else 0))
            for half, dropped in enumerate(self.facts["dropped_bits"])
            for place, prime in enumerate(self.primes)
        ]
        lengths = [self._degree * bits // 8 for _, _, bits in rows]
        offset = self._start + block * sum(lengths)
        for (half, place, bits), length in zip(rows, lengths, strict=True):
            if half == wanted:
                yield place, bits, slice(offset, offset + length)
            offset += length

    def half(self, block: int, wanted: int) -> list[int]:
        """Return c0 (0) or c1 (1) of a ciphertext, with the middle of the range for dropped bits."""
        rows = []
        for _, bits, where in self._rows(block, wanted):
            packed = np.frombuffer(self.frame[where], np.uint8)
            digits = np.unpackbits(packed, bitorder="little").reshape(self._degree, bits)
            rows.append(digits.astype(np.uint64) @ (np.uint64(1) << np.arange(bits, dtype=np.uint64)))
        dropped = self.facts["dropped_bits"][wanted]
        return [
            from_digits(restore_low_bits([int(x) for x in fields], dropped), self.primes)
            for fields in zip(*rows, strict=True)
        ]

    def with_half(self, block: int, wanted: int, coefficients: list[int]) -> bytes:
        dropped = self.facts["dropped_bits"][wanted]
        fields = [drop_low_bits(to_digits(x, self.primes), dropped) for x in coefficients]
        frame = bytearray(self.frame)
        for place, bits, where in self._rows(block, wanted):
            total = sum(field[place] << (bits * index) for index, field in enumerate(fields))
            frame[where] = total.to_bytes(where.stop - where.start, "little")
        return resealed(bytes(frame))


def ask_for_secret(frame: bytes, parameters: ckks.Parameters, log2_size: int) -> bytes:
    """Add Delta 2^k to coefficient 0 of the first ciphertext's c1: it opens to 2^k s beside its values."""
    batch = BatchFrame(frame, parameters)
    first = batch.half(0, 1)
    first[0] = (first[0] + (1 << (batch.facts["log2_scale"] + log2_size))) % math.prod(batch.primes)
    return batch.with_half(0, 1, first)


def secret_from_sum(opened: NDArray[np.floating[Any]], parameters: ckks.Parameters, log2_size: int) -> Counts:
    """Read the ternary secret from the first N values of an opened sum.

    The sum includes :func:`ask_for_secret`'s batch and other batches.
    """
    size = 2.0 ** (log2_size - parameters.fraction_bits)
    found: Counts = np.rint(opened[: parameters.ring_degree] / size).astype(np.int64)
    return found


def open_batch(frame: bytes, parameters: ckks.Parameters, secret: Counts) -> Counts:
    """Decrypt a client's recorded batch with a secret: quantised values (count,), or noise by a wrong one."""
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


def _negacyclic(coefficients: list[int], secret: Counts) -> NDArray[Any]:
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
    """Restore dropped bits as the middle of their range, which is 1/2 too much on average."""
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
