"""What is said of labels without an attack."""

from __future__ import annotations

import numpy as np
import pytest

from attack_references.label_floors import label_floors


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
