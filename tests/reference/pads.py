"""One-time pads once more, slowly, in plain Python: what the fast core is tested against.

Nothing here is constant-time or meant for use. Names and orders of bytes are those of the headers in ``cpp/pads`` and
of docs/reference/wire-format.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from reference.ckks import chacha20_words

BLOCK_WORDS = 1024
ZERO_BITS = 90
"""That the last words of every block have, all zero."""


def zeros_per_block(field_bits: int) -> int:
    """Return how many words of a block carry zero."""
    return math.ceil(ZERO_BITS / field_bits)


def block_pads(seed: bytes, block: int, field_bits: int) -> list[int]:
    """Return the pads of a block: 32 bits of its key stream each where words have no more, 64 otherwise."""
    words = chacha20_words(seed, block)
    mask = (1 << field_bits) - 1
    if field_bits > 32:
        return [next(words) & mask for _ in range(BLOCK_WORDS)]
    halves: Iterator[int] = (half for word in words for half in (word & 0xFFFFFFFF, word >> 32))
    return [next(halves) & mask for _ in range(BLOCK_WORDS)]


def encrypt(integers: Sequence[int], seeds: Iterable[bytes], field_bits: int) -> list[int]:
    """Return all words of a frame: each block's values, then zeros, under the sum of the authorities' pads."""
    room = BLOCK_WORDS - zeros_per_block(field_bits)
    known = list(seeds)
    words: list[int] = []
    for block, first in enumerate(range(0, len(integers), room)):
        own = [int(one) for one in integers[first : first + room]]
        own += [0] * (BLOCK_WORDS - len(own))
        for seed in known:
            own = [m + pad for m, pad in zip(own, block_pads(seed, block, field_bits), strict=True)]
        words += [word & ((1 << field_bits) - 1) for word in own]
    return words


def open_sums(words: Sequence[int], pads: Sequence[int], count: int, field_bits: int) -> list[int]:
    """Return the sums under these pads, with their signs.

    Raises ValueError where a word without a value is not zero.
    """
    room = BLOCK_WORDS - zeros_per_block(field_bits)
    half, modulus = 1 << (field_bits - 1), 1 << field_bits
    opened: list[int] = []
    for index, (word, pad) in enumerate(zip(words, pads, strict=True)):
        value = (word - pad + half) % modulus - half
        block, place = divmod(index, BLOCK_WORDS)
        if place < room and block * room + place < count:
            opened.append(value)
        elif value:
            raise ValueError("this is no sum")
    return opened


def pack(words: Sequence[int], field_bits: int) -> bytes:
    """Return words bit after bit, lowest first; whole blocks fill whole bytes."""
    number = sum(word << (index * field_bits) for index, word in enumerate(words))
    return number.to_bytes(len(words) * field_bits // 8, "little")


def unpack(payload: bytes, field_bits: int) -> list[int]:
    """Return the words of a payload."""
    number = int.from_bytes(payload, "little")
    return [
        (number >> (index * field_bits)) & ((1 << field_bits) - 1)
        for index in range(8 * len(payload) // field_bits)
    ]
