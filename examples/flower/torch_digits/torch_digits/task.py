"""The model, its data, and how it is trained and evaluated."""

from __future__ import annotations

from functools import cache

import torch
from sklearn import datasets
from torch import nn

Samples = tuple[torch.Tensor, torch.Tensor]


def make_model(hidden: int) -> nn.Module:
    """Return a network with one hidden layer, from a fixed seed."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, hidden), nn.ReLU(), nn.Linear(hidden, 10))


@cache
def load_digits() -> Samples:
    """Return all samples."""
    digits = datasets.load_digits()
    return torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)


def load_partition(number: int, partitions: int) -> tuple[Samples, Samples]:
    """Return a client's samples to train and to evaluate with: as many as any other's."""
    features, labels = load_digits()
    size = len(labels) // partitions
    own = torch.arange(number, partitions * size, partitions)
    trains, evaluates = own[: 4 * size // 5], own[4 * size // 5 :]
    return (features[trains], labels[trains]), (features[evaluates], labels[evaluates])


def train(model: nn.Module, samples: Samples, epochs: int, learning_rate: float, seed: int) -> float:
    """Train in place; return the mean loss of the last epoch."""
    features, labels = samples
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.SGD(model.parameters(), lr=learning_rate)
    loss_of = nn.CrossEntropyLoss()
    mean = 0.0
    for _ in range(epochs):
        batches = torch.randperm(len(labels), generator=generator).split(16)
        losses = []
        for batch in batches:
            optimiser.zero_grad()
            loss = loss_of(model(features[batch]), labels[batch])
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
        mean = sum(losses) / len(losses)
    return mean


def evaluate(model: nn.Module, samples: Samples) -> tuple[float, float]:
    """Return loss and accuracy."""
    features, labels = samples
    with torch.no_grad():
        scores = model(features)
    loss = nn.functional.cross_entropy(scores, labels).item()
    return loss, (scores.argmax(1) == labels).float().mean().item()
