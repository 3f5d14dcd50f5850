"""What views of clients, that need no federation, tell of their labels: masks, sizes, and the last layer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from shieldfl.errors import ParameterError
from shieldfl.lab.audit.attacks.membership import (
    correlation_with_truth,
    last_weights,
    played_clients,
    predicted_distributions,
)
from shieldfl.lab.audit.views.observed_update import ObservedUpdate

__all__ = ["ClientView", "infer_labels", "seen", "update_view"]

Floats = NDArray[np.float64]

ClientView = Callable[[torch.Tensor, torch.Tensor, int], Floats]
"""Takes a client's features and labels and a seed; returns what is seen of such a client, numbers (d,).

The sizes in bytes of a client's messages are such numbers as they are."""


def update_view(observed: ObservedUpdate) -> Floats:
    """Describe an update by its last layer: each class's mean change of the weights that are known, and its bias's.

    Returns (2 * classes,), 0 where nothing is known.
    """
    layout, classes = observed.layout, observed.classes
    weights = last_weights(layout, classes)
    assert weights is not None  # of models with a linear layer at their end
    known = observed.known[weights].reshape(classes, -1)
    change = np.where(known, observed.change[weights].reshape(classes, -1), 0.0)
    means = change.sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    biases = np.zeros(classes)
    if layout.size - weights.stop == classes:  # the layer's bias follows it, and nothing else
        after = slice(weights.stop, layout.size)
        biases = np.where(observed.known[after], observed.change[after], 0.0)
    return np.concatenate([means, biases]).astype(np.float64)


def seen(
    positions: NDArray[np.int64],
    view: ClientView,
    features: torch.Tensor,
    labels: torch.Tensor,
    seed: int,
) -> Floats:
    """Return what is seen of each client, (n, d); client i gets the seed ``seed + i``."""
    return np.stack([view(features[own], labels[own], seed + number) for number, own in enumerate(positions)])


def infer_labels(
    view: ClientView,
    public: tuple[torch.Tensor, torch.Tensor],
    private: tuple[torch.Tensor, torch.Tensor],
    classes: int,
    *,
    played: int = 200,
    attacked: int = 100,
    samples: int = 50,
    alpha: float = 0.5,
    seed: int = 0,
) -> tuple[tuple[float, float, float], float, float]:
    """Play clients of public data, and infer the labels of clients of private data from what is seen of them.

    Returns the correlation with its interval, and the mean error of a share with the view and without it.

    Parameters
    ----------
    view : callable
        See :data:`ClientView`.
    public, private : pairs of tensors, features (N, ...) and labels (N,)
        Of a like distribution, with no sample in both.
    played, attacked : int
        Clients; of ``attacked`` there are 2 or more.
    samples, alpha : int, float
        Of each client, and of the Dirichlet distribution of its classes.

    Raises
    ------
    ParameterError
        For numbers out of range.
    """
    if attacked < 2:
        raise ParameterError("an interval needs 2 attacked clients or more")
    own, known = played_clients(public[1], classes, played, samples, alpha, seed)
    others, truth = played_clients(private[1], classes, attacked, samples, alpha, seed + 1)
    views, attacked_views = seen(own, view, *public, seed), seen(others, view, *private, seed + played)
    predicted, guess = predicted_distributions(views, known, attacked_views), known.mean(axis=0)
    correlation = correlation_with_truth(predicted, truth, guess, seed)
    return correlation, float(np.abs(predicted - truth).mean()), float(np.abs(guess - truth).mean())
