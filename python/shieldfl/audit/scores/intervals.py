"""Between what an attack's success lies, by how often it was tried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.stats import bootstrap

from shieldfl.errors import ParameterError

__all__ = ["Interval", "bootstrap_interval"]

_RESAMPLES = 9999


@dataclass(frozen=True)
class Interval:
    """A confidence interval, both ends included."""

    low: float
    high: float
    confidence: float


def bootstrap_interval(
    values: Sequence[float], statistic: Literal["mean", "median"], seed: int, confidence: float = 0.95
) -> Interval:
    """Return the percentile bootstrap interval of a mean or median. Raises ParameterError for no values.

    One value says nothing of how far others lie from it: its interval has no ends.
    """
    _check_confidence(confidence)
    if not len(values):
        raise ParameterError("no values have no interval: try the attack at least once")
    if len(values) == 1:
        return Interval(-np.inf, np.inf, confidence)
    found = bootstrap(
        (np.asarray(values, dtype=np.float64),),
        {"mean": np.mean, "median": np.median}[statistic],
        n_resamples=_RESAMPLES,
        batch=1000,
        confidence_level=confidence,
        # The others divide by the spread, which is zero where all values are the same.
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return Interval(float(found.low), float(found.high), confidence)


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise ParameterError(f"a confidence lies between 0 and 1, got {confidence}")
