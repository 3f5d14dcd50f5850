"""What ``distributed_noise_accuracy.py`` trains, and on what."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from shieldfl.lab.simulation.data import Dataset, load_dataset

SELECTION_SEED = 100
"""Of what is tried while training is chosen; none that is measured."""
HELD_OUT = 6
"""One of so many training samples is held out while training is chosen."""


@dataclass(frozen=True)
class Choice:
    """What is chosen on held-out samples; without noise nothing is clipped, so that C is chosen with it."""

    learning_rate: float
    clip_norm: float


@dataclass(frozen=True)
class Task:
    """A model that is small, since noise grows with it, and how its training is chosen."""

    name: str
    square: int
    """An image is the means of its squares of so many pixels each way."""
    layers: Callable[[Dataset], list[nn.Module]]
    choices: tuple[Choice, ...]
    selection_epsilon: float
    """At which one of them is chosen."""

    def built(self, dataset: Dataset, seed: int) -> nn.Module:
        """Return the model as it is before the first round."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return nn.Sequential(*self.layers(dataset))

    def pooled(self, name: str) -> Dataset:
        """Return a data set of such images."""
        dataset = load_dataset(name)
        small = [
            nn.functional.avg_pool2d(one, self.square)
            for one in (dataset.train_features, dataset.test_features)
        ]
        return replace(dataset, train_features=small[0], test_features=small[1])


def _convolution(dataset: Dataset) -> list[nn.Module]:
    """A convolution of 8 channels and a linear layer."""
    channels, side, _ = dataset.feature_shape
    convolved = [nn.Conv2d(channels, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten()]
    return [*convolved, nn.Linear(8 * ((side + 1) // 2) ** 2, dataset.classes)]


def _linear(dataset: Dataset) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(math.prod(dataset.feature_shape), dataset.classes)]


TASKS = {
    task.name: task
    for task in (
        Task("convolution", 2, _convolution, (Choice(0.1, 0.6), Choice(0.2, 0.6)), 8.0),
        Task(
            "linear",
            4,
            _linear,
            (Choice(0.5, 0.3), Choice(0.5, 0.5), Choice(1.0, 0.3), Choice(1.0, 0.5)),
            1.0,
        ),
    )
}


def without_test(dataset: Dataset) -> Dataset:
    """Return the training samples alone: of those, the last are what models are measured on."""
    count = len(dataset.train_labels)
    order = torch.from_numpy(np.random.default_rng(SELECTION_SEED).permutation(count))
    kept, held = order[count // HELD_OUT :], order[: count // HELD_OUT]
    features, labels = dataset.train_features, dataset.train_labels
    return replace(
        dataset,
        train_features=features[kept],
        train_labels=labels[kept],
        test_features=features[held],
        test_labels=labels[held],
    )
