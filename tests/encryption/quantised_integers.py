"""Quantised values that packings must carry without an error."""

from __future__ import annotations

import numpy as np


def top_of(parameters):
    return 2 ** (parameters.value_bits - 1) - 1


def integers_of(parameters, kind, rng, count):
    """Integers that are random, extreme, or at the border between the two."""
    top = top_of(parameters)
    if kind == "random":
        return rng.integers(-top, top + 1, count)
    if kind == "highest":
        return np.full(count, top)
    if kind == "lowest":
        return np.full(count, -top)
    return rng.choice([-top, -top + 1, -1, 0, 1, top - 1, top], count)
