"""How right an attack is about labels and images, beside a guess that looks at nothing, and between what it lies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import bootstrap

from shieldfl.lab.audit.attack import Example, Outcome, Recovered
from shieldfl.lab.audit.views.trial import Truth


def psnr(images: torch.Tensor, true: torch.Tensor, value_range: tuple[float, float]) -> torch.Tensor:
    """Return the peak signal-to-noise ratio of each image (m, ...), dB (m,), by the width of the range."""
    error = (images - true).double().square().flatten(1).mean(dim=1)
    return 10 * torch.log10((value_range[1] - value_range[0]) ** 2 / error)


def matched(images: torch.Tensor, true: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pair recovered images (m, ...) with true ones (n, ...) so that the sum of squared distances is least.

    Each is in one pair at most, and there are min(m, n) pairs: positions of the recovered ones in ascending order, and
    of their true ones.
    """
    rows, columns = linear_sum_assignment(_squared_distances(images, true).numpy())
    return torch.from_numpy(rows), torch.from_numpy(columns)


def _squared_distances(images: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    return torch.cdist(images.flatten(1).double(), others.flatten(1).double()).square()


def _correlation_distances(images: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    def directions(values: torch.Tensor) -> torch.Tensor:
        flat = values.flatten(1).double()
        return torch.nn.functional.normalize(flat - flat.mean(dim=1, keepdim=True), dim=1)

    return 1 - directions(images) @ directions(others).T


DISTANCES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "squared": _squared_distances,
    "correlation": _correlation_distances,
}
"""By what images are near, by name: of (m, ...) and (n, ...) to (m, n). ``correlation`` is blind to brightness and
contrast, which the gradient's direction says nothing of."""


@dataclass(frozen=True)
class Identified:
    """Of how many recovered images the nearest in a pool is one that the client trained on."""

    identified: int
    tried: int
    chance: float
    """The share that images have which tell nothing: the client's share of the pool."""

    @property
    def precision(self) -> float:
        """IIP (Alt-FL, section V), in [0, 1]; NaN where nothing was tried."""
        return self.identified / self.tried if self.tried else math.nan


def identified(
    images: torch.Tensor, pool: torch.Tensor, true_positions: torch.Tensor, distance: str = "squared"
) -> Identified:
    """Look for the nearest of a pool (n, ...), which has the client's at ``true_positions``, to (m, ...)."""
    nearest = (
        DISTANCES[distance](images, pool).argmin(dim=1) if len(images) else torch.empty(0, dtype=torch.int64)
    )
    right = int(torch.isin(nearest, true_positions).sum())
    return Identified(right, len(images), len(set(true_positions.tolist())) / len(pool))


Counts = NDArray[np.int64]


@dataclass(frozen=True)
class LabelScores:
    """Shares of the classes, in [0, 1], of which a guess is right (SenseCrypt, section 5)."""

    existence: float
    """LeAcc: whether the class is there, mean of 1[(k^ > 0) = (k > 0)]."""
    number: float
    """LnAcc: how many samples are of it, mean of 1[k^ = k]."""


def label_scores(guessed: Counts, true: Counts) -> LabelScores:
    """Compare counts of labels (classes,) with the client's."""
    return LabelScores(
        existence=float(np.mean((guessed > 0) == (true > 0))), number=float(np.mean(guessed == true))
    )


_RESAMPLES = 9999


@dataclass(frozen=True)
class Interval:
    """An interval of 95 % confidence, both ends included."""

    low: float
    high: float


def bootstrap_interval(values: Sequence[float], statistic: Literal["mean", "median"], seed: int) -> Interval:
    """Return the percentile bootstrap interval, which has no ends for one value."""
    if len(values) == 1:
        return Interval(-np.inf, np.inf)
    found = bootstrap(
        (np.asarray(values, dtype=np.float64),),
        {"mean": np.mean, "median": np.median}[statistic],
        n_resamples=_RESAMPLES,
        batch=1000,
        confidence_level=0.95,
        # The others divide by the spread, which is zero where all values are the same.
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(float(found.low), float(found.high))


FIGURES = {"labels": "LnAcc", "images": "IIP"}
"""By what an attack recovers: the figure that it is judged by."""

_SHOWN = 8
_POOL = 100
"""Images among which the nearest to a recovered one is looked for, the client's among them."""


def label_outcome(recovered: Recovered, truth: Truth, classes: int) -> Outcome:
    """Judge counts of labels by LnAcc, beside the best one number that can be said of every class.

    That number is the best in hindsight: nobody who says the same of all classes does better without the update.
    """
    true = truth.label_counts(classes)
    counts: Counts = np.zeros_like(true) if recovered.label_counts is None else recovered.label_counts
    found = label_scores(counts, true)
    constant = max(float(np.mean(true == number)) for number in np.unique(true))
    return Outcome(found.number, constant, {"LeAcc": found.existence}, remark=recovered.remark)


def image_outcome(
    recovered: Recovered, truth: Truth, public: torch.Tensor, value_range: tuple[float, float], seed: int
) -> Outcome:
    """Judge images by IIP: the share of them whose nearest in a pool is one of the client's; 0 where there are none.

    The pool has the client's samples and public ones, 100 together or twice the client's, in a random order. Beside it:
    the median PSNR in dB of the images that are paired with the client's so that distances are least.
    """
    count = len(truth.features)
    pool = torch.cat([truth.features, public[: max(_POOL - count, count)]])
    order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(seed))
    places = torch.empty_like(order)
    places[order] = torch.arange(len(pool))
    images = recovered.images
    if images is None or not len(images):
        return Outcome(0.0, count / len(pool), {"images": 0.0}, remark=recovered.remark)
    found = identified(images, pool[order], places[:count])
    rows, columns = matched(images, truth.features)
    decibels = psnr(images[rows], truth.features[columns], value_range)
    true = truth.features[columns][:_SHOWN]
    nearest = _squared_distances(true, public).argmin(dim=1)
    return Outcome(
        found.precision,
        found.chance,
        {"images": float(len(images)), "PSNR": float(decibels.clamp(max=100.0).median())},
        Example(images[rows][:_SHOWN], true, public[nearest], value_range),
        recovered.remark,
    )
