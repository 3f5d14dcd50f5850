"""Was this sample trained on? Asked of a model's confidences, beside shadow models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.training.sgd import outputs_of

__all__ = ["Shadows", "TrainShadow", "confidence_scores", "train_shadows"]

Scores = NDArray[np.float64]

TrainShadow = Callable[[torch.Tensor, int], nn.Module]
"""Takes the positions of candidates to train on, int64 (k,), and a seed; returns a model trained as the target was."""

_FEWEST_FOR_OWN_DEVIATION = 32
"""Shadow models with, or without, a sample from which a deviation of its own is better than one for all samples."""
_LEAST_DEVIATION = 1e-6


def confidence_scores(model: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> Scores:
    """Return log(p / (1 - p)) of the probability p that a classifier gives to each sample's label, (N,).

    Source: Carlini et al. 2022, section IV-A. It is worked out from logits in float64, so that no p rounds to 1.
    """
    logits = outputs_of(model, features).double()
    own = logits.gather(1, labels.cpu()[:, None])
    others = logits.scatter(1, labels.cpu()[:, None], -torch.inf).logsumexp(dim=1, keepdim=True)
    scores: Scores = (own - others)[:, 0].numpy()
    return scores


@dataclass(frozen=True)
class Shadows:
    """What models say of candidates of which they were trained on some.

    Source: Carlini, Chien, Nasr, Song, Terzis, Tramèr 2022, "Membership inference attacks from first principles",
    algorithm 1 and section VI-A for a deviation that samples share where there are few models.

    Raises ParameterError unless every candidate is out for 2 models or more.
    """

    scores: Scores
    """Of each model on each candidate, (models, m)."""
    included: NDArray[np.bool_]
    """Which candidates each model was trained on, (models, m)."""

    def __post_init__(self) -> None:
        if self.scores.ndim != 2 or self.scores.shape != self.included.shape:
            raise ParameterError("shadow models have one score, and one flag, for each candidate")
        if (~self.included).sum(axis=0).min(initial=2) < 2:
            raise ParameterError(
                "every candidate is to be left out by 2 shadow models or more: train more of them"
            )

    def online(self, target: Scores) -> Scores:
        """Return log-likelihood ratios (m,) of a target's scores (m,): trained on the candidate, against not.

        Raises ParameterError where a candidate is in fewer than 2 models.
        """
        if self.included.sum(axis=0).min(initial=2) < 2:
            raise ParameterError(
                "every candidate is to be in 2 shadow models or more for a likelihood ratio: train more of them"
            )
        ratios: Scores = norm.logpdf(target, *self.fit(self.included)) - norm.logpdf(
            target, *self.fit(~self.included)
        )
        return ratios

    def fit(self, chosen: NDArray[np.bool_]) -> tuple[Scores, Scores]:
        """Return mean and deviation (m,) of the chosen models' scores."""
        counts = chosen.sum(axis=0)
        means = np.where(chosen, self.scores, 0.0).sum(axis=0) / counts
        squares = np.where(chosen, (self.scores - means) ** 2, 0.0)
        if counts.min() < _FEWEST_FOR_OWN_DEVIATION:
            variances = np.full(means.shape, squares.sum() / max(1, (counts - 1).sum()))
        else:
            variances = squares.sum(axis=0) / (counts - 1)
        return means, np.maximum(np.sqrt(variances), _LEAST_DEVIATION)

    def without(self, model: int) -> Shadows:
        """Return all models but one, which can then be a target of which is known what it was trained on."""
        return Shadows(np.delete(self.scores, model, axis=0), np.delete(self.included, model, axis=0))


def train_shadows(
    train: TrainShadow,
    features: torch.Tensor,
    labels: torch.Tensor,
    models: int,
    seed: int,
    on_trained: Callable[[int], None] = lambda model: None,
) -> Shadows:
    """Train shadow models, each on a random half of the candidates, so that each candidate is in for half of them.

    Parameters
    ----------
    train : callable
        See :data:`TrainShadow`; what else the target was trained on, it may use too.
    features, labels : tensors, shape (m, ...) and (m,)
        The candidates.
    models : int
        Even, at least 4.
    seed : int
        Of the halves; model i is trained with the seed ``seed + i``.
    on_trained : callable, optional
        Told the number of each model that is done.

    Raises
    ------
    ParameterError
        For a number of models that is odd or too small.
    """
    if models < 4 or models % 2:
        raise ParameterError(f"shadow models are an even number, 4 or more, got {models}")
    ranks = np.random.default_rng(seed).random((models, len(features))).argsort(axis=0)
    included = ranks < models // 2
    scores = np.empty(included.shape)
    for number, chosen in enumerate(included):
        model = train(torch.from_numpy(np.flatnonzero(chosen)), seed + number)
        scores[number] = confidence_scores(model, features, labels)
        on_trained(number)
    return Shadows(scores, included)
