"""Updates of small and of planted models on digits, as attacks get them."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache

import numpy as np
import torch
from torch import nn

from shieldfl.lab.audit.views.observed_update import ObservedUpdate
from shieldfl.lab.simulation.data import Dataset, load_dataset
from shieldfl.learning.local_trainer import train_locally
from shieldfl.models.torch_bridge import flatten
from shieldfl.settings import TrainingSettings

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


def unit_images(dataset: Dataset) -> tuple[torch.Tensor, torch.Tensor]:
    """A data set's images before they were normalised, in [0, 1]: of its training set and of its test set."""
    low, high = dataset.feature_range
    return (dataset.train_features - low) / (high - low), (dataset.test_features - low) / (high - low)


def observed_step(
    model: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    classes: int = 10,
    learning_rate: float = 0.01,
    known: np.ndarray | None = None,
    noise_deviation: float = 0.0,
    training: TrainingSettings | None = None,
) -> ObservedUpdate:
    """What a client's training changes, by default one step on all of its samples, and of which all is known."""
    settings = training or TrainingSettings(
        local_epochs=1, batch_size=len(images), learning_rate=learning_rate
    )
    observed = trained(model, images, labels, settings, known)
    noise = (
        np.random.default_rng(1).normal(0, noise_deviation, observed.change.size) if noise_deviation else 0.0
    )
    change = (observed.change + noise).astype(np.float32)
    return replace(
        observed, change=change, classes=classes, noise_deviation=noise_deviation, value_range=(0.0, 1.0)
    )


def best_psnr(found: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    """Of each true image in [0, 1], the peak signal-to-noise ratio in dB of the image found that is nearest."""
    if len(found) == 0:
        return torch.full((len(truth),), -torch.inf)
    differences = torch.cdist(truth.flatten(1).double(), found.flatten(1).double())
    return -20 * torch.log10(differences.min(dim=1).values.clamp_min(1e-9) / truth[0].numel() ** 0.5)


def positions_of(observed: ObservedUpdate, *names: str) -> np.ndarray:
    """True at the positions of tensors with such names."""
    chosen = np.zeros(observed.change.size, dtype=bool)
    for name, where in observed.layout.slices():
        chosen[where] = name in names
    return chosen
