"""What is learned: three straight lines, by least squares over samples that each client draws."""

from __future__ import annotations

import numpy as np
from flwr.app import Array

LINES, FEATURES = 3, 8


class LinearModel:
    """NumPy's arrays by name, which the app's server asks for as it does for those of torch."""

    def __init__(self, arrays):
        self.arrays = arrays

    def state_dict(self):
        return {name: Array(one) for name, one in self.arrays.items()}

    def errors(self, features, targets):
        return features @ self.arrays["weight"].T + self.arrays["bias"] - targets

    def descend(self, features, targets, learning_rate):
        """Take a step along the gradient of all samples."""
        errors = self.errors(features, targets)
        self.arrays = {
            "weight": self.arrays["weight"]
            - np.float32(learning_rate) * (errors.T @ features) / len(features),
            "bias": self.arrays["bias"] - np.float32(learning_rate) * errors.mean(axis=0),
        }


def new_model(seed):
    weight = np.random.default_rng(seed).normal(size=(LINES, FEATURES))
    return LinearModel({"weight": weight.astype(np.float32), "bias": np.zeros(LINES, np.float32)})


def own_samples(context):
    """Return features and targets of this client alone: lines of its own, so that no two clients learn the same."""
    drawn = np.random.default_rng([context.run_config["partition-seed"], context.node_config["partition-id"]])
    shapes = (40, FEATURES), (FEATURES, LINES)
    features, lines = (drawn.normal(size=shape).astype(np.float32) for shape in shapes)
    return features, features @ lines
