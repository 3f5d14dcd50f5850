"""Scores of label counts, and what no attack reaches."""

from __future__ import annotations

import numpy as np
import pytest

from shieldfl.audit.scores.label_scores import label_floors, label_scores
from shieldfl.errors import ParameterError


def test_shares_of_classes_are_counted():
    true = np.array([2, 0, 1, 0])
    assert label_scores(true, true) == label_scores(np.array([2, 0, 1, 0]), true)
    scores = label_scores(np.array([1, 0, 1, 1]), true)
    assert (scores.existence, scores.number) == (0.75, 0.5)


@pytest.mark.parametrize(("classes", "samples", "everything"), [(100, 200, 0.866), (10, 30, 0.958)])
def test_floors_of_uniform_labels(classes, samples, everything):
    rng = np.random.default_rng(0)
    floors = [
        label_floors(np.bincount(rng.integers(classes, size=samples), minlength=classes)) for _ in range(400)
    ]
    mean = {name: np.mean([floor[name].existence for floor in floors]) for name in floors[0]}
    assert mean["everything present"] == pytest.approx(everything, abs=0.005)
    assert mean["nothing present"] == pytest.approx(1 - everything, abs=0.005)


def test_the_even_guess_scores_numbers_too():
    assert label_floors(np.array([3, 3, 0, 2]))["everything present"].number == 0.25
    assert label_floors(np.array([2, 2, 2, 6]))["everything present"].number == 0.0
    assert label_floors(np.array([0, 0, 1]))["everything present"].number == pytest.approx(1 / 3)


def test_counts_of_other_classes_are_refused():
    with pytest.raises(ParameterError, match="shape"):
        label_scores(np.array([1, 2]), np.array([1, 2, 3]))
