"""One client's update as an attacker holds it: values at some positions, and public facts of the training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from shieldfl.array_view import FloatVector
from shieldfl.errors import ParameterError
from shieldfl.models.model_layout import ParameterLayout
from shieldfl.models.torch_bridge import parameter_layout
from shieldfl.settings import TrainingSettings

__all__ = ["ObservedUpdate"]

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class ObservedUpdate:
    """What one client's training changed, as far as the attacker knows it.

    Raises ParameterError where nothing is known, or the arrays do not fit the model.
    """

    model: nn.Module
    """Model that the client trained from, as far as the attacker knows it. Attacks work on copies."""
    change: FloatVector
    """Parameters after training minus before, (P,).

    Values where ``known`` is false tell nothing.
    """
    known: Flags
    """Whether the attacker has the value of each position, exact or noised, (P,)."""
    training: TrainingSettings
    """Settings of the client's training; public."""
    samples: int
    """Number of samples that the client trained on; public, as weights are."""
    sample_shape: tuple[int, ...]
    classes: int
    noise_deviation: float | FloatVector = 0.0
    """Standard deviation of noise, and of rounding by encryption, on known values of ``change``.

    It is one number for all values, or (P,) for each; 0 where values are exact. It is public, as a method's
    settings are.
    """
    value_range: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest value of a sample's features; public, as the normalisation is."""

    def __post_init__(self) -> None:
        size = self.layout.size
        deviations = np.shape(self.noise_deviation) or (size,)
        if {np.shape(self.change), np.shape(self.known), deviations} != {(size,)}:
            raise ParameterError(
                f"the model has {size:,} parameters: give as many changes, as many flags, and one deviation "
                "of the noise or as many"
            )
        if not self.known.any():
            raise ParameterError("nothing is known of the update, so there is nothing to attack")

    @property
    def layout(self) -> ParameterLayout:
        """Where the tensors lie in the flat vectors."""
        return parameter_layout(self.model)

    @property
    def steps(self) -> int:
        """How many steps of SGD the client took."""
        batches = -(-self.samples // self.training.batch_size)
        return batches * self.training.local_epochs

    @property
    def gradients_taken(self) -> float:
        """How many times the learning rate multiplies a gradient that is the same in every step.

        That is the number of steps, and more with momentum, which carries a gradient through all later steps.
        """
        momentum = self.training.momentum
        return sum((1 - momentum**step) / (1 - momentum) for step in range(1, self.steps + 1))

    @property
    def deviation(self) -> FloatVector:
        """Standard deviation of the noise on each value of ``change``, (P,)."""
        of_all = np.asarray(self.noise_deviation, dtype=np.float32)
        return np.broadcast_to(of_all, self.change.shape) if of_all.ndim == 0 else of_all

    @property
    def gradient(self) -> FloatVector:
        """The mean gradient (P,) that SGD would need for this change, if it were the same in every step.

        After one step it is the gradient itself.
        """
        return np.asarray(-self.change / self._carried, dtype=np.float32)

    @property
    def gradient_deviation(self) -> FloatVector:
        """Standard deviation of the noise on each value of :attr:`gradient`, (P,)."""
        return np.asarray(self.deviation / self._carried, dtype=np.float32)

    @property
    def _carried(self) -> float:
        return self.training.learning_rate * self.gradients_taken

    def tensors(self, vector: FloatVector | Flags) -> Mapping[str, Tensor]:
        """Cut a vector (P,) into the model's tensors, by name."""
        layout = self.layout
        return {
            name: torch.from_numpy(vector[where].copy()).reshape(shape)
            for (name, where), shape in zip(layout.slices(), layout.shapes, strict=True)
        }

    def filled(self, change: FloatVector) -> ObservedUpdate:
        """Return the update with guesses where nothing is known; known values stay."""
        return replace(self, change=np.where(self.known, self.change, change).astype(np.float32))
