"""Updates of small models on digits, as attacks get them."""

from __future__ import annotations

from copy import deepcopy
from functools import cache

import numpy as np
import torch
from torch import nn

from shieldfl.audit.views.observed_update import ObservedUpdate
from shieldfl.settings import TrainingSettings
from shieldfl.simulation.data import Dataset, load_dataset
from shieldfl.torch_bridge import flatten
from shieldfl.training.sgd import train_locally

# A step of rate 1 loses no digits of the gradient to the parameters.
ONE_STEP = TrainingSettings(local_epochs=1, batch_size=1000, learning_rate=1.0, momentum=0.0)


@cache
def digits() -> Dataset:
    return load_dataset("digits")


def digits_range() -> tuple[float, float]:
    assert digits().feature_range is not None
    low, high = digits().feature_range
    return float(low), float(high)


def relu_model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))


def sigmoid_model(seed: int = 0) -> nn.Module:
    """Smooth, with a convolution: what matching gradients finds the image from."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Conv2d(1, 8, kernel_size=3, padding=1), nn.Sigmoid(), nn.Flatten(), nn.Linear(512, 10)
    )
    for parameter in model.parameters():
        nn.init.uniform_(parameter, -0.5, 0.5)
    return model


def trained(
    model: nn.Module,
    features: torch.Tensor,
    labels: torch.Tensor,
    training: TrainingSettings = ONE_STEP,
    known: np.ndarray | None = None,
) -> ObservedUpdate:
    """What a client's training changes, in full unless ``known`` says so."""
    after = deepcopy(model)
    train_locally(after, features, labels, training, seed=0)
    change = flatten(after) - flatten(model)
    return ObservedUpdate(
        model=model,
        change=change,
        known=np.ones(change.size, dtype=bool) if known is None else known,
        training=training,
        samples=len(labels),
        sample_shape=tuple(features.shape[1:]),
        classes=10,
        value_range=digits_range(),
    )


def drawn(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples and labels of digits."""
    places = torch.randperm(len(digits().train_labels), generator=torch.Generator().manual_seed(seed))[:count]
    return digits().train_features[places], digits().train_labels[places]
