"""What is clear beside an update, and what it tells of a client's labels: masks, votes, sizes, and the last layer.

The attacker plays clients with data of its own, of known label distributions, records what it would see of each, and
fits a ridge regression from that to the distribution. What it then predicts of others is compared with the guess that
needs no view: the mean of the distributions that it played.

Source of the method: Ateniese et al. 2015, "Hacking smart machines with smarter ones", section 3; the views are ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import bootstrap
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from shieldfl.errors import ParameterError
from shieldfl.parameter_layout import ParameterLayout

__all__ = [
    "InferenceFigures",
    "LabelInference",
    "PlayedClients",
    "last_weights",
    "mask_view",
]

Floats = NDArray[np.float64]

_PENALTIES = tuple(10.0**power for power in range(-2, 6))


def mask_view(
    chosen: NDArray[np.bool_] | NDArray[np.float64], layout: ParameterLayout, classes: int
) -> Floats:
    """Describe a set of positions (P,), votes, or sizes: the mean in each tensor, and each class's last weights.

    Returns (tensors + classes,), (tensors,) where the last layer's weight has no row for each class, as one that is
    made of factors. Raises ParameterError for another size.
    """
    if chosen.shape != (layout.size,):
        raise ParameterError(f"the model has {layout.size:,} parameters: give as many flags")
    shares = np.asarray([chosen[where].mean() for _, where in layout.slices()])
    weights = _last_weights(layout, classes)
    if weights is None:
        return shares
    return np.concatenate([shares, chosen[weights].reshape(classes, -1).mean(axis=1)])


def last_weights(layout: ParameterLayout, classes: int) -> slice:
    """Return where the last weight lies that has a row for each class. Raises ParameterError where none has."""
    weights = _last_weights(layout, classes)
    if weights is None:
        raise ParameterError(f"the model has no linear layer with a row for each of {classes} classes")
    return weights


def _last_weights(layout: ParameterLayout, classes: int) -> slice | None:
    places = [
        where
        for (_, where), shape in zip(layout.slices(), layout.shapes, strict=True)
        if len(shape) == 2 and shape[0] == classes
    ]
    return places[-1] if places else None


@dataclass(frozen=True)
class PlayedClients:
    """Clients of known label distributions, each with as many samples, drawn from the same data with others."""

    positions: NDArray[np.int64]
    """Of each one's samples in the data, (n, samples)."""
    distributions: Floats
    """What share of each one's samples is of which class, (n, classes)."""

    @classmethod
    def drawn(
        cls, labels: torch.Tensor, classes: int, clients: int, samples: int, alpha: float, seed: int
    ) -> PlayedClients:
        """Draw each client's shares of classes from Dir(alpha, ..., alpha), and samples of these classes.

        Samples may be of several clients. Raises ParameterError for a number below 1, an alpha that is not positive, or
        a class of which there is no sample.
        """
        if min(clients, samples) < 1 or not alpha > 0:
            raise ParameterError("play 1 client or more, of 1 sample or more, with a positive alpha")
        own = labels.cpu().numpy()
        pools = [np.flatnonzero(own == label) for label in range(classes)]
        if not all(len(pool) for pool in pools):
            raise ParameterError("there is a class without a sample: no client of it can be played")
        generator = np.random.default_rng(seed)
        counts = generator.multinomial(samples, generator.dirichlet(np.full(classes, alpha), size=clients))
        positions = [
            np.concatenate([generator.choice(pool, count) for pool, count in zip(pools, row, strict=True)])
            for row in counts
        ]
        return cls(np.stack(positions).astype(np.int64), counts / samples)


@dataclass(frozen=True)
class LabelInference:
    """An attacker who has seen clients of its own."""

    guess: Floats
    """The distribution that it would guess of a client of which it sees nothing, (classes,)."""
    regression: Pipeline

    @classmethod
    def fitted(cls, views: Floats, distributions: Floats) -> LabelInference:
        """Fit it to views (n, d) of clients with such distributions (n, classes).

        The penalty is the best of several by leave-one-out. Raises ParameterError for fewer than 3 clients.
        """
        if len(views) < 3 or len(views) != len(distributions):
            raise ParameterError("fit to 3 clients or more, with a view and a distribution of each")
        regression = make_pipeline(StandardScaler(), RidgeCV(alphas=_PENALTIES))
        regression.fit(views, distributions)
        return cls(distributions.mean(axis=0), regression)

    def predicted(self, views: Floats) -> Floats:
        """Return the distributions (n, classes) that views (n, d) tell of."""
        shares = np.maximum(self.regression.predict(views), 0.0)
        totals = shares.sum(axis=1, keepdims=True)
        predicted: Floats = np.where(totals > 0, shares / np.where(totals > 0, totals, 1.0), self.guess)
        return predicted


@dataclass(frozen=True)
class InferenceFigures:
    """What views tell of the labels of clients that the attacker did not play; intervals by bootstrap."""

    clients: int
    error: float
    """Mean absolute error of a class's share."""
    error_of_guess: float
    """The same without a view."""
    gain: tuple[float, float, float]
    """How much less the error is with the view, and its interval: nothing is shown to be learnt unless both ends are
    above 0."""
    correlation: tuple[float, float, float]
    """Of what is predicted with what is true, both without the guess, and its interval; 0 is chance."""
    confidence: float

    @classmethod
    def of(
        cls,
        predicted: Floats,
        truth: Floats,
        guess: Floats,
        seed: int,
        confidence: float = 0.95,
        drawn_together: int = 1,
    ) -> InferenceFigures:
        """Compare distributions (n, classes) with the true ones and with a guess (classes,).

        Of clients that depend on each other, so many in a row, the bootstrap draws all or none.
        """
        errors = np.abs(predicted - truth).mean(axis=1)
        without = np.abs(guess - truth).mean(axis=1)

        def gain(chosen: NDArray[np.int64]) -> float:
            return float((without - errors)[chosen].mean())

        def correlation(chosen: NDArray[np.int64]) -> float:
            ours, true = (predicted - guess)[chosen].ravel(), (truth - guess)[chosen].ravel()
            lengths = np.linalg.norm(ours) * np.linalg.norm(true)
            return float(ours @ true / lengths) if lengths > 0 else 0.0

        def with_interval(statistic: Callable[[NDArray[np.int64]], float]) -> tuple[float, float, float]:
            clients = np.arange(len(truth)).reshape(-1, drawn_together)
            interval = bootstrap(
                (np.arange(len(clients)),),
                lambda drawn: statistic(clients[drawn].ravel()),
                n_resamples=1000,
                vectorized=False,
                confidence_level=confidence,
                method="percentile",
                rng=np.random.default_rng(seed),
            ).confidence_interval
            return statistic(clients.ravel()), float(interval.low), float(interval.high)

        return cls(
            len(truth),
            float(errors.mean()),
            float(without.mean()),
            with_interval(gain),
            with_interval(correlation),
            confidence,
        )
