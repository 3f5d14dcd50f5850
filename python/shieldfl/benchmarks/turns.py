"""Timing functions against each other: they take turns, so that a slow spell of the machine hits all alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

__all__ = ["median_seconds_in_turns"]


def median_seconds_in_turns(
    functions: Mapping[str, Callable[[], object]],
    repetitions: int,
    before: Callable[[], object] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Return the median seconds of each function, after one call of each that is not counted.

    ``before`` is called before each of them and not timed. ``clock`` is ``time.process_time`` where other programs keep
    the processor busy, and what is timed has one thread.
    """
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(repetitions):
        for name, function in functions.items():
            before()
            begin = clock()
            result = function()
            seconds[name].append(clock() - begin)
            del result  # before the next one is timed: giving memory back is nobody's time but its own
    return {name: median(times) for name, times in seconds.items()}
