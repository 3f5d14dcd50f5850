"""How right an attack is about a client's labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError

__all__ = ["LabelScores", "label_scores"]

Counts = NDArray[np.int64]


@dataclass(frozen=True)
class LabelScores:
    """Shares of the classes, in [0, 1], of which a guess is right (SenseCrypt, section 5)."""

    existence: float
    """LeAcc: whether the class is there, mean of 1[(k^ > 0) = (k > 0)]."""
    number: float
    """LnAcc: how many samples are of it, mean of 1[k^ = k]."""


def label_scores(guessed: Counts, true: Counts) -> LabelScores:
    """Compare counts of labels (classes,) with the client's. Raises ParameterError where the sizes differ."""
    if guessed.shape != true.shape or true.ndim != 1:
        raise ParameterError(f"counts of classes differ in shape: {guessed.shape}, and {true.shape} are true")
    return LabelScores(
        existence=float(np.mean((guessed > 0) == (true > 0))), number=float(np.mean(guessed == true))
    )
