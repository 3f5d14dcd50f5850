"""What a measured client trains with: a model where one is known, processor time where its cost is stated."""

from __future__ import annotations

import threading
import time
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["ModelTraining", "SpentTraining", "Training"]

Update = NDArray[np.float32]

# Updates are small: well inside the default range of +-8, as calibration's are.
_DEVIATION = 0.05
# A fraction of a millisecond.
_STEP_VALUES = 2**16


class Training(Protocol):
    """One client's local training."""

    weights: Update
    """Before training, float32 of shape (P,)."""

    def warm_up(self) -> None:
        """Do once what only the first time takes."""

    def train_few(self) -> int:
        """Train on a few samples without an update, and return how many; 0 where there is nothing to find out."""

    def train(self) -> Update:
        """Train for a round and return the update, float32 of shape (P,)."""


class SpentTraining:
    """Spends a stated processor time, with arithmetic on arrays, on all threads; the update is random.

    Parameters
    ----------
    core_seconds : of one round, of all threads together.
    """

    def __init__(self, parameters: int, core_seconds: float, threads: int, seed: int) -> None:
        generator = np.random.default_rng(seed)
        self.weights = generator.normal(0.0, _DEVIATION, parameters).astype(np.float32)
        self._update = generator.normal(0.0, _DEVIATION, parameters).astype(np.float32)
        self._core_seconds = core_seconds
        self._threads = threads

    def warm_up(self) -> None:
        """Nothing is slower the first time."""

    def train_few(self) -> int:
        """Processor time that is stated takes as much processor time as is stated."""
        return 0

    def train(self) -> Update:
        """Spend the time and return the update."""
        end = time.process_time() + self._core_seconds
        helpers = [threading.Thread(target=_spend, args=(end,)) for _ in range(self._threads - 1)]
        for helper in helpers:
            helper.start()
        _spend(end)
        for helper in helpers:
            helper.join()
        return self._update


def _spend(end: float) -> None:
    values = np.ones(_STEP_VALUES, dtype=np.float32)
    while time.process_time() < end:
        np.sqrt(values, out=values)


class ModelTraining:
    """The training step that calibration measures, on as many random samples as the client has. Needs torch."""

    def __init__(
        self,
        model: str,
        sample_shape: tuple[int, ...],
        samples: int,
        local_epochs: int,
        threads: int,
        seed: int,
    ) -> None:
        # Only here: clients whose training is stated need no torch.
        import torch

        from shieldfl.fleet.costs.train_step import LocalTraining

        torch.set_num_threads(threads)
        self._training = LocalTraining(model, sample_shape, samples, local_epochs, seed)
        self.weights = self._training.weights()

    def warm_up(self) -> None:
        """Train once on a few samples."""
        self.train_few()

    def train_few(self) -> int:
        """Train on some batches."""
        count = self._training.train_few()
        self.weights = self._training.weights()
        return count

    def train(self) -> Update:
        """Train and return the difference of the weights."""
        self._training.train()
        after = self._training.weights()
        update: Update = after - self.weights
        self.weights = after
        return update
