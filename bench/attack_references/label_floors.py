"""How right somebody is about a client's labels who attacks nothing."""

from __future__ import annotations

import numpy as np

from shieldfl.lab.audit.attack import Counts, LabelScores, label_scores

__all__ = ["label_floors"]


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
