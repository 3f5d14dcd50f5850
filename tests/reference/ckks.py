"""The core's kernels once more, slowly, in plain Python and NumPy: what the fast ones are tested against.

Nothing here is constant-time or meant for use; whoever wants to understand the scheme can read it from top to
bottom. Names and orders of bits are those of the headers in ``cpp/``.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shieldfl.lab.audit.protocol.ckks_frames import (
    drop_low_bits,
    from_digits,
    read_sums,
    restore_low_bits,
    to_digits,
)

__all__ = ["drop_low_bits", "from_digits", "read_sums", "restore_low_bits", "to_digits"]

_MASK32 = 0xFFFFFFFF


def chacha20_words(seed: bytes, stream_index: int) -> Iterator[int]:
    """Yield the 64-bit words of the ChaCha20 key stream (RFC 8439) with nonce (0, stream_index)."""

    def rotate(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (32 - bits))) & _MASK32

    def quarter_round(x: list[int], a: int, b: int, c: int, d: int) -> None:
        for first, second, third, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            x[first] = (x[first] + x[second]) & _MASK32
            x[third] = rotate(x[third] ^ x[first], bits)

    constants = struct.unpack("<4I", b"expand 32-byte k")
    key = struct.unpack("<8I", seed)
    nonce = struct.unpack("<3I", bytes(4) + stream_index.to_bytes(8, "little"))
    counter = 0
    while True:
        state = [*constants, *key, counter, *nonce]
        x = list(state)
        for _ in range(10):
            for column in range(4):
                quarter_round(x, column, 4 + column, 8 + column, 12 + column)
            for diagonal in range(4):
                quarter_round(
                    x, diagonal, 4 + (diagonal + 1) % 4, 8 + (diagonal + 2) % 4, 12 + (diagonal + 3) % 4
                )
        block = struct.pack("<16I", *((word + start) & _MASK32 for word, start in zip(x, state, strict=True)))
        yield from struct.unpack("<8Q", block)
        counter += 1


def test_seed(first_seed: int, drawn: int) -> bytes:
    """Return seed number ``drawn`` of the core's InsecureTestRandom."""
    return struct.pack("<QQ", first_seed, drawn) + bytes(16)


def sample_ternary(words: Iterator[int], count: int) -> NDArray[np.int64]:
    """Draw uniformly from {-1, 0, 1}: bits a_i - b_i of word pairs, passing over (1, 1)."""
    samples: list[int] = []
    while len(samples) < count:
        a, b = next(words), next(words)
        pairs = (((a >> i) & 1, (b >> i) & 1) for i in range(64))
        samples += [first - second for first, second in pairs if not (first and second)]
    return np.array(samples[:count], dtype=np.int64)


def sample_error(words: Iterator[int], count: int) -> NDArray[np.int64]:
    """Draw from the centred binomial distribution with 21 coins on each side."""
    coins = (1 << 21) - 1
    samples: list[int] = []
    while len(samples) < count:
        group = [next(words) for _ in range(16)]
        for j in range(3):
            for i in range(8):
                plus = (group[i] >> (21 * j)) & coins
                minus = (group[8 + i] >> (21 * j)) & coins
                samples.append(plus.bit_count() - minus.bit_count())
    return np.array(samples[:count], dtype=np.int64)


@dataclass(frozen=True)
class Ring:
    """Z_q[X] / (X^N + 1), by definition."""

    degree: int
    modulus: int

    def multiply(self, a: Sequence[int], b: Sequence[int]) -> list[int]:
        """Multiply two polynomials term by term: X^N is -1."""
        # Python integers in an object array: exact whatever the modulus.
        left = np.array([int(x) for x in a], dtype=object)
        result = np.zeros(self.degree, dtype=object)
        for shift, factor in enumerate(int(x) for x in b):
            if factor == 0:
                continue
            rolled = np.roll(left, shift)
            rolled[:shift] = -rolled[:shift]
            result = result + factor * rolled
        return [int(x) % self.modulus for x in result]

    def primitive_root(self) -> int:
        """Return the smallest primitive 2N-th root of unity."""
        order = 2 * self.degree
        base = 2
        while (
            pow(pow(base, (self.modulus - 1) // order, self.modulus), self.degree, self.modulus)
            != self.modulus - 1
        ):
            base += 1
        root = pow(base, (self.modulus - 1) // order, self.modulus)
        return min(pow(root, exponent, self.modulus) for exponent in range(1, order, 2))

    def ntt(self, values: Sequence[int]) -> list[int]:
        """Evaluate at the odd powers of the root, in bit-reversed order: the forward transform's definition."""
        bits = self.degree.bit_length() - 1
        root = self.primitive_root()
        result = []
        for index in range(self.degree):
            power = int(f"{index:0{bits}b}"[::-1], 2) if bits else 0
            point = pow(root, 2 * power + 1, self.modulus)
            total = 0
            for value in reversed([int(x) for x in values]):
                total = (total * point + value) % self.modulus
            result.append(total)
        return result


def quantise(values: NDArray[np.floating], fraction_bits: int, weight: float = 1.0) -> NDArray[np.int64]:
    """Round value * weight * 2^fraction_bits to the nearest integer, ties to even."""
    return np.rint(values.astype(np.float64) * (weight * 2.0**fraction_bits)).astype(np.int64)


def count_underflowed(values: NDArray[np.floating], fraction_bits: int, weight: float = 1.0) -> int:
    """Count the values that are not zero and quantise to zero."""
    return int(np.count_nonzero((values != 0) & (quantise(values, fraction_bits, weight) == 0)))


def weight_fraction_bits(value_bits: int, fraction_bits: int) -> int:
    """Say how many bits a weight has behind the point: as many as values, unless a weight of 1 would not fit."""
    return min(fraction_bits, value_bits - 2)


def pack_exact(integers: Sequence[int], degree: int, log2_scale: int, field_bits: int) -> list[int]:
    """Put value v of a block into field v // N of coefficient v % N, above the noise."""
    message = [0] * degree
    for index, value in enumerate(integers):
        message[index % degree] += int(value) << (log2_scale + (index // degree) * field_bits)
    return message


def encrypt(
    ring: Ring, public0: Sequence[int], public1: Sequence[int], message: Sequence[int], words: Iterator[int]
) -> tuple[list[int], list[int]]:
    """Encrypt one message polynomial: (p0 u + e0 + m, p1 u + e1). All polynomials as coefficients.

    ``words`` is the block's random stream: u is drawn first, then e0, then e1, each from whole words.
    """
    u = sample_ternary(words, ring.degree)
    e0 = sample_error(words, ring.degree)
    e1 = sample_error(words, ring.degree)
    first = ring.multiply(public0, [int(x) for x in u])
    second = ring.multiply(public1, [int(x) for x in u])
    c0 = [(a + int(e) + m) % ring.modulus for a, e, m in zip(first, e0, message, strict=True)]
    c1 = [(a + int(e)) % ring.modulus for a, e in zip(second, e1, strict=True)]
    return c0, c1


def decrypt(ring: Ring, c0: Sequence[int], c1: Sequence[int], secret: Sequence[int]) -> list[int]:
    """Return c0 + c1 s: the message and its noise."""
    product = ring.multiply(c1, secret)
    return [(int(a) + b) % ring.modulus for a, b in zip(c0, product, strict=True)]


def combine_residues(residues: Sequence[int], primes: Sequence[int]) -> int:
    """Return the number below the product of the primes that leaves these residues."""
    modulus = math.prod(primes)
    number = 0
    for residue, prime in zip(residues, primes, strict=True):
        others = modulus // prime
        number += int(residue) * others * pow(others, -1, prime)
    return number % modulus


def correct_mean(number: int, batches: int, dropped_bits: int, modulus: int) -> int:
    """Take what :func:`restore_low_bits` added too much in the sum of so many batches, rounded down."""
    return (number - (batches // 2 if dropped_bits else 0)) % modulus


def negotiate(masks: NDArray[np.bool_], consensus: float) -> NDArray[np.bool_]:
    """Choose the positions whose share of votes is at least ``consensus``: eq. 16 of SelectiveShield, (K, P)."""
    chosen: NDArray[np.bool_] = masks.sum(axis=0) / len(masks) >= consensus
    return chosen
