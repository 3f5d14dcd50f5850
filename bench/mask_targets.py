"""Negotiation beside NumPy and beside reading masks, and how near mask frames come to the entropy of what they say."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

import shieldfl as sf
from shieldfl.lab.bench.lines import CLIENTS, CONSENSUS, negotiation_over_reading, voters
from shieldfl.lab.bench.target import Target, at_least, at_most, median_seconds_in_turns
from sizes import Sizes


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
