"""Logistic regression of ten classes: weights (64, 10) and biases (10,)."""

from __future__ import annotations

from functools import cache

import numpy as np
from sklearn import datasets

Samples = tuple[np.ndarray, np.ndarray]


def make_model() -> list[np.ndarray]:
    """Return weights and biases, all zero."""
    return [np.zeros((64, 10), np.float32), np.zeros(10, np.float32)]


@cache
def load_data() -> tuple[Samples, Samples]:
    """Return the samples of all clients, and those that the server keeps to evaluate with."""
    digits = datasets.load_digits()
    features, labels = (digits.data / 16).astype(np.float32), digits.target
    return (features[:1500], labels[:1500]), (features[1500:], labels[1500:])


def load_partition(number: int, partitions: int) -> Samples:
    """Return a client's samples: the more, the larger its number."""
    (features, labels), _ = load_data()
    ends = np.cumsum(np.arange(1, partitions + 1)) * len(labels) // (partitions * (partitions + 1) // 2)
    own = slice(0 if number == 0 else ends[number - 1], ends[number])
    return features[own], labels[own]


def probabilities(model: list[np.ndarray], features: np.ndarray) -> np.ndarray:
    """Return what the model says of each class, (samples, 10)."""
    weights, biases = model
    scores = features @ weights + biases
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponentials / exponentials.sum(axis=1, keepdims=True)


def train(model: list[np.ndarray], samples: Samples, learning_rate: float, steps: int = 20) -> None:
    """Descend along the gradient of all samples, in place."""
    features, labels = samples
    weights, biases = model
    for _ in range(steps):
        errors = probabilities(model, features)
        errors[np.arange(len(labels)), labels] -= 1.0
        weights -= learning_rate * features.T @ errors / len(labels)
        biases -= learning_rate * errors.mean(axis=0)


def evaluate(model: list[np.ndarray], samples: Samples) -> tuple[float, float]:
    """Return loss and accuracy."""
    features, labels = samples
    said = probabilities(model, features)
    loss = -np.log(said[np.arange(len(labels)), labels]).mean()
    return float(loss), float((said.argmax(axis=1) == labels).mean())
