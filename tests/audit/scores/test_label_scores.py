"""Scores of label counts."""

from __future__ import annotations

import numpy as np
import pytest

from shieldfl.audit.figures import label_scores
from shieldfl.errors import ParameterError


def test_shares_of_classes_are_counted():
    true = np.array([2, 0, 1, 0])
    assert label_scores(true, true) == label_scores(np.array([2, 0, 1, 0]), true)
    scores = label_scores(np.array([1, 0, 1, 1]), true)
    assert (scores.existence, scores.number) == (0.75, 0.5)


def test_counts_of_other_classes_are_refused():
    with pytest.raises(ParameterError, match="shape"):
        label_scores(np.array([1, 2]), np.array([1, 2, 3]))
