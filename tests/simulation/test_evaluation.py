"""Each model is measured once, and figures are means over all who have it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shieldfl.simulation.evaluation import Evaluation
from shieldfl.torch_bridge import flatten
from shieldfl.training.local_update import StartingPoint
from shieldfl.training.objective import Objective

NOTHING = np.empty(0, np.float32)


@pytest.fixture
def measured():
    """Models that were measured, by their first number, which is the figure."""
    return []


@pytest.fixture
def evaluation(measured):
    model = torch.nn.Linear(2, 1, bias=False)

    def first_number(outputs, targets):
        measured.append(float(flatten(model)[0]))
        return measured[-1]

    test_set = torch.zeros(3, 2), torch.zeros(3, 1)
    return Evaluation(model, Objective(metrics={"first": first_number}), *test_set)


def point(value: float) -> StartingPoint:
    return StartingPoint(np.array([value, 1.0], np.float32), NOTHING)


def test_equal_models_are_measured_once_whether_they_share_memory_or_not(evaluation, measured):
    shared = point(3.0)
    own, of_all = evaluation.means([shared, shared, point(3.0), point(7.0)], [point(7.0)])
    assert own == {"first": 4.0}
    assert of_all == {"first": 7.0}
    assert measured == [3.0, 7.0]


def test_a_model_of_the_round_before_is_not_measured_again_and_older_ones_are(evaluation, measured):
    for value, another in ((1.0, 2.0), (2.0, 3.0), (3.0, 1.0)):
        assert evaluation.means([point(value), point(another)]) == [{"first": (value + another) / 2}]
    assert measured == [1.0, 2.0, 3.0, 1.0]


def test_a_model_that_is_changed_in_its_place_is_another_one(evaluation):
    changing = point(1.0)
    assert evaluation.means([changing]) == [{"first": 1.0}]
    changing.parameters[0] = 5.0
    assert evaluation.means([changing]) == [{"first": 5.0}]


def test_of_no_models_there_are_no_figures(evaluation):
    assert evaluation.means([], [point(1.0)]) == [{}, {"first": 1.0}]
