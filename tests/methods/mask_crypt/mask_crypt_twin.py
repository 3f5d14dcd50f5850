"""MaskCrypt's proposals and consensus as its paper tells them, one position at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest


def twin_ranking(scores: Sequence[float], count: int) -> list[int]:
    return sorted(range(len(scores)), key=lambda position: (-scores[position], position))[:count]


def twin_consensus(proposals: Sequence[Sequence[int]], limit: int | None) -> list[int]:
    """Positions in the order in which they entered the consensus."""
    kept: list[int] = []
    for choices in zip_longest(*proposals):
        for position in choices:
            if position is not None and position not in kept and (limit is None or len(kept) < limit):
                kept.append(position)
    return kept
