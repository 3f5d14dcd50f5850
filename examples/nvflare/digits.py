"""The model and the data that all three jobs train: scikit-learn's digits, which need no download."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

SITES = ("site-1", "site-2", "site-3")
_SHARES = (0.5, 0.3, 0.2)
"""Of the training data: clients do not weigh alike."""
_TEST = 360
_SEED = 20


class Classifier(nn.Module):
    """A perceptron with ReLU between its layers.

    Parameters
    ----------
    hidden : widths of the layers between 64 pixels and 10 digits.
    """

    def __init__(self, hidden: list[int]) -> None:
        super().__init__()
        torch.manual_seed(_SEED)
        layers: list[nn.Module] = []
        widths = [64, *hidden]
        for inputs, outputs in pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-1], 10))

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        """Return the logits, (batch, 10), of pixels (batch, 64)."""
        return self.layers(pixels)


def _loaded() -> tuple[torch.Tensor, torch.Tensor]:
    data = load_digits()
    order = np.random.default_rng(_SEED).permutation(len(data.target))
    return torch.tensor(data.data[order] / 16.0, dtype=torch.float32), torch.tensor(data.target[order])


def training_data(site: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a site's pixels and digits."""
    pixels, digits = (part[_TEST:] for part in _loaded())
    ends = np.round(np.cumsum((0.0, *_SHARES)) * len(digits)).astype(int)
    number = SITES.index(site)
    return pixels[ends[number] : ends[number + 1]], digits[ends[number] : ends[number + 1]]


def accuracy(model: nn.Module) -> float:
    """Return the share of the test data that a model tells right."""
    pixels, digits = (part[:_TEST] for part in _loaded())
    with torch.no_grad():
        return float((model(pixels).argmax(1) == digits).float().mean())
