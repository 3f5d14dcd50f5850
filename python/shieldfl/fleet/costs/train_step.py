"""What a training step takes here, and a client's training that consists of such steps. Needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from shieldfl.methods.model_adaptation import adapt_model
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.settings import MethodSettings
from shieldfl.profiling.stages import median_seconds
from shieldfl.settings import TrainingSettings
from shieldfl.torch_bridge import flatten, flatten_buffers, parameter_layout
from shieldfl.training.local_trainer import LocalTrainer
from shieldfl.training.local_update import LocalUpdate, StartingPoint
from shieldfl.training.models import build_model
from shieldfl.training.sgd import train_locally

__all__ = ["BATCH_SIZE", "CLASSES", "LocalTraining", "TrainStep"]

BATCH_SIZE = 32
CLASSES = 10

# A few batches at a time, so that starting an epoch weighs as little as it does in training.
_BATCHES = 8


class TrainStep:
    """SGD with the default momentum, on random samples; errors as of ``build_model``."""

    def __init__(self, model: str, sample_shape: tuple[int, ...], classes: int, batch_size: int) -> None:
        self._model = build_model(model, sample_shape, classes, seed=0)
        self._settings = TrainingSettings(local_epochs=1, batch_size=batch_size)
        self._features, self._labels = _random_samples(_BATCHES * batch_size, sample_shape, classes, seed=0)
        self.parameters = parameter_layout(self._model).size

    def seconds_per_sample(self, threads: int, seconds: float) -> float:
        """Time an epoch with so many threads; torch's own number of threads is left as it was."""
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return median_seconds(self._train, seconds, threads=threads) / len(self._features)
        finally:
            torch.set_num_threads(before)

    def _train(self) -> None:
        train_locally(self._model, self._features, self._labels, self._settings, seed=0)


class LocalTraining:
    """A client's training in a round: the same step, on as many random samples and epochs as it has."""

    def __init__(
        self, model: str, sample_shape: tuple[int, ...], samples: int, local_epochs: int, seed: int
    ) -> None:
        self._model = build_model(model, sample_shape, CLASSES, seed=0)
        self._settings = TrainingSettings(local_epochs=local_epochs, batch_size=BATCH_SIZE)
        self._samples = _random_samples(samples, sample_shape, CLASSES, seed)
        self.begin_method("fedavg", {})

    def begin_method(self, method: str, settings: Mapping[str, Any]) -> None:
        """Train what the method trains of the model. Raises as :func:`adapt_model` does."""
        known = MethodSettings()
        module = adapt_model(method, self._model, known.changed(method, settings) if settings else known)
        self._trainer = LocalTrainer(module, *self._samples, self._settings)
        self.layout = parameter_layout(module)
        self.initial = GlobalModel(flatten(module), flatten_buffers(module))

    def train(self, start: StartingPoint) -> tuple[LocalUpdate, float]:
        """Train for one round; return the update, and how many seconds its scores took."""
        update, _ = self._trainer.train(start, seed=0)
        return update, self._trainer.clock.take().get("score", 0.0)

    def train_few(self) -> int:
        """Train for one epoch on as many samples as a measured step has, or all; return how many."""
        features, labels = (one[: _BATCHES * BATCH_SIZE] for one in self._samples)
        train_locally(self._model, features, labels, replace(self._settings, local_epochs=1), seed=0)
        return len(features)


def _random_samples(
    count: int, sample_shape: tuple[int, ...], classes: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn((count, *sample_shape), generator=generator)
    return features, torch.randint(classes, (count,), generator=generator)
