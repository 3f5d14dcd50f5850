"""What one attack on one update came to, beside what a guess comes to that looks at nothing."""

from __future__ import annotations

import numpy as np
import torch

from shieldfl.audit.attack import Recovered
from shieldfl.audit.result import Example, Outcome
from shieldfl.audit.scores.image_scores import DISTANCES, identified, matched, psnr
from shieldfl.audit.scores.label_scores import Counts, label_scores
from shieldfl.audit.views.trial import Truth

__all__ = ["FIGURES", "image_outcome", "label_outcome"]

FIGURES = {"labels": "LnAcc", "images": "IIP"}
"""By what an attack recovers: the figure that it is judged by."""

_SHOWN = 8
"""Images of an example, at most."""
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
    recovered: Recovered,
    truth: Truth,
    public: torch.Tensor,
    value_range: tuple[float, float],
    seed: int,
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
    nearest = DISTANCES[found.distance](true, public).argmin(dim=1)
    return Outcome(
        found.precision,
        found.chance,
        {"images": float(len(images)), "PSNR": float(decibels.clamp(max=100.0).median())},
        Example(images[rows][:_SHOWN], true, public[nearest], value_range),
        recovered.remark,
    )
