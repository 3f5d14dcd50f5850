"""Moments of draws, beside those of the normal distribution."""

from __future__ import annotations

import math

import numpy as np

# A standard score beyond 6 comes once in 5e8 honest runs.
SCORE_LIMIT = 6.0


def assert_normal(scaled: np.ndarray) -> None:
    """Hold the first four moments against those of a standard normal sample, by their standard errors."""
    for moment, expected, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs((scaled**moment).mean() - expected) * math.sqrt(scaled.size / variance) < SCORE_LIMIT
