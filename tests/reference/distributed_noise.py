"""A client's share of distributed noise once more, slowly: what the core's is tested against.

Rotation, rounding and drawing as the headers in ``cpp/noise`` define them, in NumPy and integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from reference.ckks import chacha20_words

Real = TypeVar("Real", np.float32, np.float64)

_BLOCK = 4096
_GROUP = 16


class AliasTable(NamedTuple):
    """Of each bucket the threshold, below 2^128, and the other magnitude."""

    thresholds: Sequence[int]
    others: Sequence[int]

    def probabilities(self) -> list[Fraction]:
        """Return the probability of every magnitude."""
        buckets = len(self.thresholds)
        found = [Fraction(0)] * buckets
        for own, (threshold, other) in enumerate(zip(self.thresholds, self.others, strict=True)):
            found[own] += Fraction(threshold, 2**128 * buckets)
            found[other] += Fraction(2**128 - threshold, 2**128 * buckets)
        return found

    def draw(self, word: int, more: Iterator[int]) -> int:
        """Return the integer that a random word, and two more where it does not decide, lead to."""
        bucket = (word >> 1) % len(self.thresholds)
        first, threshold = word >> 32, self.thresholds[bucket]
        own = first < threshold >> 96
        if first == threshold >> 96:
            middle, last = next(more), next(more)
            own = (first << 96 | middle % 2**32 << 64 | last) < threshold
        magnitude = bucket if own else self.others[bucket]
        return -magnitude if word % 2 else magnitude


def rotated(values: NDArray[Real], seed: bytes, *, inverse: bool = False) -> NDArray[Real]:
    """Transform the first 2^k values after signs of their own and then the last 2^k, or undo it."""
    count = 2 ** (values.size.bit_length() - 1)
    norm = values.dtype.type(1.0 / np.sqrt(np.float64(count)))
    result = values.copy()
    parts = [result[:count], result[values.size - count :]]
    for transform in (1, 0) if inverse else (0, 1):
        part = parts[transform]
        signs = _signs(seed, transform, count).astype(values.dtype) * norm
        part[:] = _hadamard(part) * signs if inverse else _hadamard(part * signs)
    return result


def _signs(seed: bytes, transform: int, count: int) -> NDArray[np.int64]:
    words = chacha20_words(seed, transform)
    bits = [word >> i & 1 for word in islice(words, (count + 63) // 64) for i in range(64)]
    return 1 - 2 * np.array(bits[:count], dtype=np.int64)


def _hadamard(values: NDArray[Real]) -> NDArray[Real]:
    """Return the Walsh-Hadamard transform, unscaled: neighbours first, halves last."""
    distance = 1
    while distance < values.size:
        pairs = values.reshape(-1, 2, distance)
        values = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        distance *= 2
    return values


def rounded(values: NDArray[np.float32], steps: float, words: Iterator[int]) -> list[int]:
    """Round each value times ``steps`` to one of the integers next to it, one half of a word deciding for each."""
    integers: list[int] = []
    for start in range(0, values.size, _GROUP):
        random = list(islice(words, _GROUP // 2))
        halves = [word % 2**32 for word in random] + [word >> 32 for word in random]
        for value, half in zip(values[start : start + _GROUP], halves, strict=False):
            floor, fraction = divmod(Fraction(float(value) * steps), 1)
            integers.append(floor + (Fraction(2 * half + 1, 2**33) < fraction))
    return integers


def added_draws(integers: Sequence[int], table: AliasTable, words: Iterator[int]) -> list[int]:
    """Add a draw to each value of a block: a word for each place of its groups, then what is read where one is open."""
    places = -(-len(integers) // _GROUP) * _GROUP
    own = list(islice(words, places))
    # Places behind the last value read on, too, should theirs be open; but nothing is read after them.
    draws = [table.draw(word, words) for word in own]
    return [value + draw for value, draw in zip(integers, draws, strict=False)]


def noise_share(
    clipped: NDArray[np.float32],
    *,
    steps_per_unit: float,
    rotation_seed: bytes,
    norm_bound_squared: int,
    most_rounded: int,
    most_sent: int,
    table: AliasTable,
    seeds: Iterator[bytes],
) -> tuple[list[int], int]:
    """Return the share of an update that is within its norm, and how often rounding was drawn."""
    values = rotated(clipped, rotation_seed)
    blocks = [values[start : start + _BLOCK] for start in range(0, values.size, _BLOCK)]
    for tries, (rounding_seed, noise_seed) in enumerate(zip(seeds, seeds, strict=False), start=1):
        integers = [
            rounded(block, steps_per_unit, chacha20_words(rounding_seed, index))
            for index, block in enumerate(blocks)
        ]
        if sum(value**2 for block in integers for value in block) > norm_bound_squared:
            continue
        share: list[int] = []
        for index, block in enumerate(integers):
            short = [_within(value, most_rounded) for value in block]
            noised = added_draws(short, table, chacha20_words(noise_seed, index))
            share += [_within(value, most_sent) for value in noised]
        return share, tries
    raise ValueError("all seeds are used up")


def _within(value: int, most: int) -> int:
    return max(-most, min(most, value))
