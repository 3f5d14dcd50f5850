"""Seconds by stage: a stopwatch that steps pass to each other."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

__all__ = ["StageClock"]


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
        """Add what another clock took."""
        for name, spent in seconds.items():
            self._seconds[name] += spent

    def seconds(self) -> dict[str, float]:
        """Return the seconds of every stage since they were taken last."""
        return dict(self._seconds)

    def take(self) -> dict[str, float]:
        """Return the seconds of every stage since the last call, and start again from zero."""
        seconds = self.seconds()
        self._seconds.clear()
        return seconds
