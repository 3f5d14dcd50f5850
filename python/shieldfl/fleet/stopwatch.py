"""Timing a step often enough for a median."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

__all__ = ["median_seconds"]

_FEWEST = 3


def median_seconds(
    step: Callable[[], Any], seconds: float, prepare: Callable[[], Any] | None = None
) -> float:
    """Time a step until ``seconds`` and three repetitions are over, after one for warming up; return the median.

    ``prepare`` runs before each repetition and is not counted in its time.
    """
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) <= _FEWEST or time.perf_counter() - begin < seconds:
        if prepare is not None:
            prepare()
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return median(times[1:])
