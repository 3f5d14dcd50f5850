"""Mask negotiation beside reading the masks once, which is the least that anybody who counts their votes has to do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from shieldfl.benchmarks.target import Target, at_most
from shieldfl.benchmarks.turns import median_seconds_in_turns
from shieldfl.masks import Mask, negotiate

__all__ = ["CLIENTS", "CONSENSUS", "negotiation_over_reading", "voters"]

CLIENTS = 20
CONSENSUS = 0.2
_SHARE = 0.1
_READERS = {"sum": np.add.reduce, "XOR": np.bitwise_xor.reduce, "maximum": np.maximum.reduce}
# Larger than any cache that a core has to itself or shares, for the sizes that figures are for.
_EVICTING_TIMES = 8


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
