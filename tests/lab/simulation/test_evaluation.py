"""Each model is measured once, and figures are means over all who have it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shieldfl.lab.simulation.method_run import Evaluation
from shieldfl.learning.local_trainer import Objective
from shieldfl.learning.local_update import StartingPoint
from shieldfl.models.torch_bridge import flatten

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


def test_matched_accuracy_weighs_classes_by_each_clients_own_share():
    # Outputs are the features themselves, so the first feature of the larger value is the class that is said.
    model = torch.nn.Linear(2, 2, bias=False)
    features = torch.tensor([[2.0, 1.0], [2.0, 1.0], [1.0, 2.0], [2.0, 1.0]])
    targets = torch.tensor([0, 0, 1, 1])
    shares = np.array([[1.0, 0.0], [0.25, 0.75]])
    evaluation = Evaluation(model, Objective(), features, targets, shares)
    straight = StartingPoint(np.array([1, 0, 0, 1], np.float32), NOTHING)  # right in all of 0 and half of 1
    swapped = StartingPoint(np.array([0, 1, 1, 0], np.float32), NOTHING)  # right in none of 0 and half of 1
    assert evaluation.means([straight, swapped], [straight]) == [{"accuracy": 0.5}, {"accuracy": 0.75}]
    assert evaluation.matched_accuracy([0, 1], [straight, swapped]) == pytest.approx((1.0 + 0.375) / 2)
    assert evaluation.matched_accuracy([1], [straight]) == pytest.approx(0.25 + 0.375)


def test_a_class_that_the_test_set_lacks_leaves_its_clients_without_a_figure():
    shares = np.array([[0.5, 0.5], [1.0, 0.0]])
    evaluation = Evaluation(
        torch.nn.Linear(1, 2, bias=False), Objective(), torch.ones(2, 1), torch.tensor([0, 0]), shares
    )
    first = StartingPoint(np.array([1, 0], np.float32), NOTHING)
    evaluation.means([first])
    assert np.isnan(evaluation.matched_accuracy([0], [first]))
    assert evaluation.matched_accuracy([1], [first]) == 1.0


def test_without_classes_there_is_no_matched_accuracy(evaluation):
    evaluation.means([point(1.0)])
    assert np.isnan(evaluation.matched_accuracy([0], [point(1.0)]))
