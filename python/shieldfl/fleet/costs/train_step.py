"""What a training step takes here. Needs torch."""

from __future__ import annotations

import torch

from shieldfl.profiling.stages import median_seconds
from shieldfl.settings import TrainingSettings
from shieldfl.torch_bridge import parameter_layout
from shieldfl.training.models import build_model
from shieldfl.training.sgd import train_locally

__all__ = ["TrainStep"]

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


def _random_samples(
    count: int, sample_shape: tuple[int, ...], classes: int, seed: int
) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn((count, *sample_shape), generator=generator)
    return features, torch.randint(classes, (count,), generator=generator)
