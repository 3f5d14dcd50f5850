from __future__ import annotations

import time

import numpy as np

from shieldfl.fleet.measure.spent_training import SpentTraining
from shieldfl.masks import Mask
from shieldfl.training.local_update import StartingPoint

PARAMETERS = 100


def start_of(scores: str | None = None) -> StartingPoint:
    return StartingPoint(np.ones(PARAMETERS, np.float32), np.zeros(3, np.float32), scores=scores, round=1)


def test_the_stated_time_is_spent_and_the_update_is_the_clients_own():
    trainings = [SpentTraining(0.05, threads=2, seed=seed) for seed in (0, 0, 1)]
    before = time.process_time()
    updates = [training.train(start_of())[0] for training in trainings]
    assert 0.15 <= time.process_time() - before < 1.0
    assert np.array_equal(updates[0].parameters, updates[1].parameters)
    assert not np.array_equal(updates[0].parameters, updates[2].parameters)
    assert updates[0].scores is None
    assert trainings[0].train_few() == 0


def test_scores_come_where_they_are_asked_for_and_only_what_is_trained_moves():
    training = SpentTraining(0.0, threads=1, seed=0)
    trained = Mask.from_indices([3, 70], PARAMETERS)
    training.begin_method(trained)
    update, seconds = training.train(start_of("taylor"))
    assert seconds > 0.0
    assert np.flatnonzero(update.parameters != 1.0).tolist() == [3, 70]
    assert np.array_equal(update.scores > 0.0, trained.to_bool())
