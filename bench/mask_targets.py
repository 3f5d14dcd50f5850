"""Negotiation beside NumPy and beside reading masks, and how near mask frames come to the entropy of what they say."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

import shieldfl as sf
from shieldfl.masks import Mask, negotiate
from sizes import Sizes
from target import Target, at_least, at_most, median_seconds_in_turns

CLIENTS = 20
"""Whose masks are negotiated."""
CONSENSUS = 0.2
_SHARE = 0.1
_READERS = {"sum": np.add.reduce, "XOR": np.bitwise_xor.reduce, "maximum": np.maximum.reduce}
# Larger than any cache that a core has to itself or shares, for the sizes that figures are for.
_EVICTING_TIMES = 8


def measure(sizes: Sizes) -> Iterator[Target]:
    """Yield the lines of this page."""
    yield _negotiation(sizes)
    yield negotiation_over_reading(sizes.masks, 5 * sizes.repetitions)
    for share in (0.01, 0.1):
        yield _frame_over_entropy(sizes.masks, share)


def _negotiation(sizes: Sizes) -> Target:
    chosen = voters(sizes.masks)
    masks = [sf.Mask.from_bool(row) for row in chosen]
    needed = math.ceil(CONSENSUS * CLIENTS)

    def ours() -> sf.Mask:
        return sf.negotiate(masks, CONSENSUS, threads=1)

    def summed() -> np.ndarray:
        return chosen.sum(axis=0, dtype=np.uint8) >= needed

    def counted_row_by_row() -> np.ndarray:
        votes = np.zeros(sizes.masks, np.uint8)
        for row in chosen.view(np.uint8):
            votes += row
        return votes >= needed

    def summed_as_usually_written() -> np.ndarray:
        return chosen.sum(axis=0) >= needed

    ways = {"sum": summed, "row by row": counted_row_by_row, "usual": summed_as_usually_written}
    for votes in ways.values():
        np.testing.assert_array_equal(ours().to_bool(), votes())
    seconds = median_seconds_in_turns({"ours": ours, **ways}, sizes.repetitions)
    fastest = min(ways, key=seconds.__getitem__)
    return at_least(
        f"negotiate {CLIENTS} masks of {sizes.masks:,}, against NumPy",
        seconds[fastest] / seconds["ours"],
        25,
        50,
        f"{1e3 * seconds['ours']:.2f} ms; NumPy {1e3 * seconds['sum']:.1f} ms by a sum in uint8, "
        f"{1e3 * seconds['row by row']:.1f} ms row by row, {1e3 * seconds['usual']:.1f} ms by .sum(axis=0) alone; "
        "the fastest counts",
    )


def _frame_over_entropy(size: int, share: float) -> Target:
    chosen = np.random.default_rng(2).random(size, np.float32) < share
    mask = sf.Mask.from_bool(chosen)
    frame = mask.to_bytes()
    assert sf.Mask.from_bytes(frame) == mask
    count = int(np.count_nonzero(chosen))
    # The number of sets of `count` out of `size` positions, as bits.
    bits = (math.lgamma(size + 1) - math.lgamma(count + 1) - math.lgamma(size - count + 1)) / math.log(2)
    return at_most(
        f"mask frame, a random {share:.0%} of {size:,}, over its entropy",
        8 * len(frame) / bits,
        1.15,
        1.05,
        note=f"{len(frame):,} bytes",
    )


def voters(positions: int) -> NDArray[np.bool_]:
    """Return a random tenth of the positions for each of CLIENTS clients: bool (CLIENTS, positions)."""
    rng = np.random.default_rng(1)
    chosen = np.empty((CLIENTS, positions), dtype=np.bool_)
    for row in chosen:
        np.less(rng.random(positions, dtype=np.float32), _SHARE, out=row)
    return chosen


def negotiation_over_reading(positions: int, repetitions: int) -> Target:
    """Compare ``negotiate`` with the fastest of some passes of NumPy over as much memory as the masks take.

    Both on one thread, and from memory: before each pass something else is read that fills the caches. The core shows
    nobody the words of its masks, so what is read is a copy: one array a mask, of the same words.
    """
    chosen = voters(positions)
    masks = [Mask.from_bool(row) for row in chosen]
    words = [_words(row) for row in chosen]
    # Written: what is only ever read of new memory is one page of zeros, which evicts nothing.
    elsewhere = np.ones(_EVICTING_TIMES * sum(row.size for row in words), np.uint64)

    def reading(reduce: Callable[[NDArray[np.uint64]], object]) -> Callable[[], object]:
        return lambda: [reduce(row) for row in words]

    seconds = median_seconds_in_turns(
        {
            "negotiate": lambda: negotiate(masks, CONSENSUS, threads=1),
            **{name: reading(ufunc) for name, ufunc in _READERS.items()},
        },
        repetitions,
        before=elsewhere.max,
    )
    fastest = min(_READERS, key=seconds.__getitem__)
    return at_most(
        f"negotiate {CLIENTS} masks of {positions:,}, over reading them once",
        seconds["negotiate"] / seconds[fastest],
        1.25,
        note=f"{1e3 * seconds['negotiate']:.3g} ms beside "
        + ", ".join(f"{1e3 * seconds[name]:.3g} ms by {name}" for name in _READERS)
        + " over uint64; the fastest counts",
    )


def _words(chosen: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Return a mask as words of 64 positions."""
    padded = np.zeros(-(-chosen.size // 64) * 64, np.bool_)
    padded[: chosen.size] = chosen
    return np.packbits(padded, bitorder="little").view(np.uint64)
