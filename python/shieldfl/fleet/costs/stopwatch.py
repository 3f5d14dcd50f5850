"""Timing a step often enough for a median."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

__all__ = ["median_seconds"]

_FEWEST = 3


def median_seconds(
    step: Callable[[], Any], seconds: float, prepare: Callable[[], Any] | None = None, threads: int = 1
) -> float:
    """Time a step until ``seconds`` and three repetitions are over, after one for warming up; return the median.

    ``prepare`` runs before each repetition and is not counted in its time. A step of one thread is timed by the
    processor time of this process, so that other programs, which take the processor away from time to time, do not
    make it seem slower. With more threads, which wait for each other, it is the time on the clock.
    """
    clock = time.process_time if threads == 1 else time.perf_counter
    times: list[float] = []
    begin = time.perf_counter()
    while len(times) <= _FEWEST or time.perf_counter() - begin < seconds:
        if prepare is not None:
            prepare()
        start = clock()
        step()
        times.append(clock() - start)
    return median(times[1:])
