"""The discrete Gaussian once more, in fractions: algorithms 1 to 3 of Canonne, Kamath and Steinke (2020)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

from reference.ckks import chacha20_words


def random_pieces(seed: bytes, stream_index: int) -> Iterator[int]:
    """Yield a random stream in 16-bit pieces."""
    for word in chacha20_words(seed, stream_index):
        yield from ((word >> shift) & 0xFFFF for shift in (0, 16, 32, 48))


def bernoulli(probability: Fraction, pieces: Iterator[int]) -> bool:
    """Compare the random number 0.w1 w2 ... in base 2^16 with ``probability``."""
    while True:
        probability *= 2**16
        piece = next(pieces)
        if piece + 1 <= probability:
            return True
        if piece >= probability:
            return False
        probability -= piece


def bernoulli_exp_minus(exponent: Fraction, pieces: Iterator[int]) -> bool:
    """Algorithm 1."""
    while exponent > 1:
        if not bernoulli_exp_minus(Fraction(1), pieces):
            return False
        exponent -= 1
    k = 1
    while bernoulli(exponent / k, pieces):
        k += 1
    return k % 2 == 1


def uniform_below(bound: int, pieces: Iterator[int]) -> int:
    """Draw 32 bits, keep those that count, reject what is too large."""
    while True:
        drawn = next(pieces) | next(pieces) << 16
        drawn %= 1 << (bound - 1).bit_length()
        if drawn < bound:
            return drawn


def discrete_laplace(scale: int, pieces: Iterator[int]) -> int:
    """Algorithm 2 for a whole scale."""
    while True:
        rest = uniform_below(scale, pieces)
        if not bernoulli_exp_minus(Fraction(rest, scale), pieces):
            continue
        steps = 0
        while bernoulli_exp_minus(Fraction(1), pieces):
            steps += 1
        magnitude = rest + scale * steps
        negative = next(pieces) % 2 == 1
        if not (negative and magnitude == 0):
            return -magnitude if negative else magnitude


def discrete_gaussian(variance: Fraction, pieces: Iterator[int]) -> int:
    """Algorithm 3."""
    scale = math.isqrt(math.floor(variance)) + 1
    while True:
        draw = discrete_laplace(scale, pieces)
        if bernoulli_exp_minus((abs(draw) - variance / scale) ** 2 / (2 * variance), pieces):
            return draw
