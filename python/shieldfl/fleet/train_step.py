"""What a training step takes here. Needs torch."""

from __future__ import annotations

import torch

from shieldfl.fleet.stopwatch import median_seconds
from shieldfl.simulation.models import build_model
from shieldfl.simulation.training import TrainingSettings, train_locally
from shieldfl.torch_bridge import parameter_layout

__all__ = ["TrainStep"]

# A few batches at a time, so that starting an epoch weighs as little as it does in training.
_BATCHES = 8


class TrainStep:
    """Plain SGD of a model on random samples; errors as :func:`shieldfl.simulation.models.build_model`."""

    def __init__(self, model: str, sample_shape: tuple[int, ...], classes: int, batch_size: int) -> None:
        self._model = build_model(model, sample_shape, classes, seed=0)
        self._settings = TrainingSettings(local_epochs=1, batch_size=batch_size)
        generator = torch.Generator().manual_seed(0)
        samples = _BATCHES * batch_size
        self._features = torch.randn((samples, *sample_shape), generator=generator)
        self._labels = torch.randint(classes, (samples,), generator=generator)
        self.parameters = parameter_layout(self._model).size

    def seconds_per_sample(self, threads: int, seconds: float) -> float:
        """Time an epoch with so many threads; torch's own number of threads is left as it was."""
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            return median_seconds(self._train, seconds) / len(self._features)
        finally:
            torch.set_num_threads(before)

    def _train(self) -> None:
        train_locally(self._model, self._features, self._labels, self._settings, seed=0)
