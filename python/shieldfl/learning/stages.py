"""Seconds by stage: a stopwatch that steps pass to each other."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from statistics import median
from typing import Any


class StageClock:
    """Adds up wall-clock seconds under names. Stages do not overlap: an inner one is taken from the outer."""

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._inner = 0.0

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Charge the time spent inside to ``name``, also when an exception ends it."""
        outer_inner, self._inner = self._inner, 0.0
        start = time.perf_counter()
        try:
            yield
        finally:
            elapsed = time.perf_counter() - start
            self._seconds[name] += elapsed - self._inner
            self._inner = outer_inner + elapsed

    def add(self, seconds: Mapping[str, float]) -> None:
        for name, spent in seconds.items():
            self._seconds[name] += spent

    def seconds(self) -> dict[str, float]:
        return dict(self._seconds)

    def take(self) -> dict[str, float]:
        seconds = self.seconds()
        self._seconds.clear()
        return seconds


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
