"""How right an attack is about labels and images, beside a guess that looks at nothing, and between what it lies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import bootstrap

from shieldfl.lab.audit.attack import Example, Outcome, Recovered


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


Counts = NDArray[np.int64]


LabelScores = tuple[float, float]


def label_scores(guessed: Counts, true: Counts) -> LabelScores:
    """Compare counts of labels (classes,) with the client's: shares of the classes, in [0, 1], that are right.

    First LeAcc, whether a class is there, mean of 1[(k^ > 0) = (k > 0)], then LnAcc, how many samples are of it, mean
    of 1[k^ = k] (SenseCrypt, section 5).
    """
    return float(np.mean((guessed > 0) == (true > 0))), float(np.mean(guessed == true))


_RESAMPLES = 9999


def bootstrap_interval(
    values: Sequence[float], seed: int, statistic: Callable[..., Any] = np.mean
) -> tuple[float, float]:
    """Return the percentile bootstrap interval of 95 % confidence, which has no ends for one value."""
    if len(values) == 1:
        return -math.inf, math.inf
    found = bootstrap(
        (np.asarray(values, dtype=np.float64),),
        statistic,
        n_resamples=_RESAMPLES,
        batch=1000,
        confidence_level=0.95,
        # The others divide by the spread, which is zero where all values are the same.
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(found.low), float(found.high)


FIGURES = {"labels": "LnAcc", "images": "IIP"}
"""By what an attack recovers: the figure that it is judged by."""

_SHOWN = 8
_POOL = 100
"""Images among which the nearest to a recovered one is looked for, the client's among them."""


def label_outcome(recovered: Recovered, labels: torch.Tensor, classes: int) -> Outcome:
    """Judge counts of labels by LnAcc, beside the best one number that can be said of every class.

    That number is the best in hindsight: nobody who says the same of all classes does better without the update.
    """
    true: Counts = np.bincount(labels.numpy(), minlength=classes).astype(np.int64)
    counts = np.zeros_like(true) if recovered.label_counts is None else recovered.label_counts
    existence, number = label_scores(counts, true)
    constant = max(float(np.mean(true == number)) for number in np.unique(true))
    return Outcome(number, constant, {"LeAcc": existence}, remark=recovered.remark)


def image_outcome(
    recovered: Recovered,
    features: torch.Tensor,
    public: torch.Tensor,
    value_range: tuple[float, float],
    seed: int,
) -> Outcome:
    """Judge images by IIP: the share of them whose nearest in a pool is one of the client's; 0 where there are none.

    The pool has the client's samples and public ones, 100 together or twice the client's, in a random order. Beside it:
    the median PSNR in dB of the images that are paired with the client's so that distances are least.
    """
    count = len(features)
    pool = torch.cat([features, public[: max(_POOL - count, count)]])
    order = torch.randperm(len(pool), generator=torch.Generator().manual_seed(seed))
    places = torch.empty_like(order)
    places[order] = torch.arange(len(pool))
    images = recovered.images
    if images is None or not len(images):
        return Outcome(0.0, count / len(pool), {"images": 0.0}, remark=recovered.remark)
    found = torch.isin(_squared_distances(images, pool[order]).argmin(dim=1), places[:count])
    rows, columns = matched(images, features)
    decibels = psnr(images[rows], features[columns], value_range)
    true = features[columns][:_SHOWN]
    nearest = _squared_distances(true, public).argmin(dim=1)
    return Outcome(
        int(found.sum()) / len(images),
        count / len(pool),
        {"images": float(len(images)), "PSNR": float(decibels.clamp(max=100.0).median())},
        Example(images[rows][:_SHOWN], true, public[nearest], value_range),
        recovered.remark,
    )
