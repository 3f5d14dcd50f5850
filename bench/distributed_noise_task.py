"""What ``distributed_noise_accuracy.py`` trains, and on what."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn

from shieldfl.simulation.data import Dataset, load_dataset

SELECTION_SEED = 100
"""Of what is tried while training is chosen; none that is measured."""
HELD_OUT = 6
"""One of so many training samples is held out while training is chosen."""


def built(dataset: Dataset, seed: int) -> nn.Module:
    """Return a model that is small, since noise grows with it: a convolution of 8 channels and a linear layer."""
    channels, side, _ = dataset.feature_shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        convolved = [nn.Conv2d(channels, 8, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten()]
        return nn.Sequential(*convolved, nn.Linear(8 * ((side + 1) // 2) ** 2, dataset.classes))


def pooled(name: str) -> Dataset:
    """Return a data set of which every image is the means of its squares of 2 x 2 pixels."""
    dataset = load_dataset(name)
    small = [nn.functional.avg_pool2d(one, 2) for one in (dataset.train_features, dataset.test_features)]
    return replace(dataset, train_features=small[0], test_features=small[1])


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
