"""Updates that clients make of planted models, and how near what was recovered comes to what they trained on."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn

from shieldfl.audit.views.observed_update import ObservedUpdate
from shieldfl.settings import TrainingSettings
from shieldfl.simulation.data import Dataset
from shieldfl.torch_bridge import flatten
from shieldfl.training.sgd import train_locally


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
    trained = copy.deepcopy(model)
    train_locally(trained, images, labels, settings, seed=0)
    change = flatten(trained) - flatten(model)
    if noise_deviation:
        change += np.random.default_rng(1).normal(0, noise_deviation, change.size).astype(np.float32)
    if known is None:
        known = np.ones(change.size, dtype=bool)
    shape = tuple(images.shape[1:])
    return ObservedUpdate(model, change, known, settings, len(images), shape, classes, noise_deviation)


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
