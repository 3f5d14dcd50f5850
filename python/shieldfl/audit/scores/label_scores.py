"""How right an attack is about a client's labels, and how right somebody is who attacks nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError

__all__ = ["LabelScores", "label_floors", "label_scores"]

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


def label_floors(true: Counts) -> dict[str, LabelScores]:
    """Return what is reached without an attack, by what is said.

    ``nothing present`` says zero of every class; ``everything present`` says the same number of every class, as near as
    whole numbers from 1 on come to the samples in all. No score above the higher of the two comes of the update alone.
    """
    even = max(1, round(int(true.sum()) / true.size))
    return {
        "nothing present": label_scores(np.zeros_like(true), true),
        "everything present": label_scores(np.full_like(true, even), true),
    }
