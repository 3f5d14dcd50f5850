"""The training of clients whose fleet file states what it takes: processor time, spent on arithmetic."""

from __future__ import annotations

import threading
import time

import numpy as np

from shieldfl.masks import Mask
from shieldfl.training.local_update import LocalUpdate, StartingPoint

__all__ = ["SpentTraining"]

# Updates are small: well inside the default range of +-8, as calibration's are.
_DEVIATION = 0.05
# A fraction of a millisecond.
_STEP_VALUES = 2**16


class SpentTraining:
    """Spends a stated processor time on all threads; the update is random.

    Parameters
    ----------
    core_seconds : of one round, of all threads together.
    """

    def __init__(self, core_seconds: float, threads: int, seed: int) -> None:
        self._core_seconds = core_seconds
        self._threads = threads
        self._seed = seed
        self._trained: Mask | None = None

    def begin_method(self, trained: Mask | None) -> None:
        """Change these parameters alone in the rounds that come; None for all."""
        self._trained = trained

    def train_few(self) -> int:
        """Return 0: processor time that is stated takes as much processor time as is stated."""
        return 0

    def train(self, start: StartingPoint) -> tuple[LocalUpdate, float]:
        """Spend the time; return the update, and how many seconds its scores took."""
        # Before all else: what the update takes is part of the time.
        end = time.process_time() + self._core_seconds
        update = np.random.default_rng(self._seed).normal(0.0, _DEVIATION, start.parameters.size)
        moved = start.parameters + update.astype(np.float32)
        if self._trained is not None:
            frozen = ~self._trained
            frozen.scatter(frozen.gather(start.parameters), moved)
        helpers = [threading.Thread(target=_spend, args=(end,)) for _ in range(self._threads - 1)]
        for helper in helpers:
            helper.start()
        _spend(end)
        for helper in helpers:
            helper.join()
        begin = time.monotonic()
        # The update stands in for the gradients that calibration scores by: as many values, and as much work.
        scores = None if start.scores is None else np.abs(start.parameters * (moved - start.parameters))
        return start.trained(moved, start.buffers, scores), time.monotonic() - begin


def _spend(end: float) -> None:
    values = np.ones(_STEP_VALUES, dtype=np.float32)
    while time.process_time() < end:
        np.sqrt(values, out=values)
