"""A batch's gradient as an update: what one step of rate 1 changes, without what parameters lose to rounding."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.functional import cross_entropy

from shieldfl.array_view import FloatVector
from shieldfl.lab.audit.views.observed_update import ObservedUpdate
from shieldfl.settings import TrainingSettings

__all__ = ["Batch", "as_update", "gradient_of"]


@dataclass(frozen=True)
class Batch:
    """Samples (B, *sample_shape) and their labels (B,)."""

    samples: torch.Tensor
    labels: torch.Tensor


def gradient_of(model: nn.Module, batch: Batch) -> FloatVector:
    """Return the mean gradient (P,) of a batch."""
    loss = cross_entropy(model.train()(batch.samples), batch.labels)
    return torch.cat([one.reshape(-1) for one in torch.autograd.grad(loss, list(model.parameters()))]).numpy()


def as_update(
    model: nn.Module,
    batch: Batch,
    gradient: FloatVector,
    value_range: tuple[float, float],
    known: NDArray[np.bool_] | None = None,
    noise_deviation: float = 0.0,
) -> ObservedUpdate:
    """Return the update that shows a gradient (P,) of a batch of ten classes; all of it is known for None."""
    return ObservedUpdate(
        model=model,
        change=-gradient,
        known=np.ones(gradient.size, dtype=bool) if known is None else known,
        training=TrainingSettings(
            local_epochs=1, batch_size=len(batch.labels), learning_rate=1.0, momentum=0.0
        ),
        samples=len(batch.labels),
        sample_shape=tuple(batch.samples.shape[1:]),
        classes=10,
        noise_deviation=noise_deviation,
        value_range=value_range,
    )
