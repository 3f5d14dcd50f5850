"""What an attacker fills in, against what was hidden."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from audit.small_updates import ONE_STEP, digits, drawn, relu_model, trained
from shieldfl.audit.attacks.labels import by_class_sums, with_last_exposed, with_own_expectation, with_zeros
from shieldfl.audit.views.observed_update import ObservedUpdate
from shieldfl.errors import ParameterError
from shieldfl.settings import TrainingSettings
from shieldfl.torch_bridge import flatten

LAST = slice(-1010, None)  # of relu_model: the last layer's weight, 10 x 100, and bias
SEVERAL = TrainingSettings(local_epochs=2, batch_size=4, learning_rate=0.2, momentum=0.9, weight_decay=0.1)


def hiding(observed: ObservedUpdate, hidden: np.ndarray) -> ObservedUpdate:
    """The same with some positions (bool) unknown and nonsense there."""
    change = np.where(hidden, np.float32(123.0), observed.change)
    return replace(observed, change=change, known=~hidden)


def whole(training: TrainingSettings = ONE_STEP) -> ObservedUpdate:
    return trained(relu_model(), *drawn(6, seed=1), training)


def one_in_each_column(size: int) -> np.ndarray:
    rows = np.random.default_rng(0).integers(10, size=101)
    last = np.zeros((10, 101), dtype=bool)
    last[rows, np.arange(101)] = True
    hidden = np.zeros(size, dtype=bool)
    hidden[LAST] = np.concatenate([last[:, :100].ravel(), last[:, 100]])
    return hidden


def test_zeros_stand_where_nothing_is_known():
    truth = whole()
    hidden = np.random.default_rng(0).random(truth.change.size) < 0.5
    filled = with_zeros(hiding(truth, hidden))
    np.testing.assert_array_equal(filled.change, np.where(hidden, 0, truth.change))
    np.testing.assert_array_equal(filled.known, ~hidden)


def test_the_last_exposed_value_stands_where_there_is_one():
    truth = whole()
    hidden = np.arange(truth.change.size) % 2 == 0
    exposed = np.full(truth.change.size, 7.0, dtype=np.float32)
    exposed[:10] = np.nan
    filled = with_last_exposed(with_zeros(hiding(truth, hidden)), exposed)
    np.testing.assert_array_equal(filled.change[:4], [0, truth.change[1], 0, truth.change[3]])
    np.testing.assert_array_equal(filled.change[10:12], [7.0, truth.change[11]])
    with pytest.raises(ParameterError, match="exposed"):
        with_last_exposed(truth, exposed[1:])


@pytest.mark.parametrize("training", [ONE_STEP, SEVERAL])
def test_one_hidden_entry_of_a_column_follows_from_the_others(training):
    truth = whole(training)
    hidden = one_in_each_column(truth.change.size)
    filled = by_class_sums(hiding(truth, hidden))
    np.testing.assert_allclose(filled.change, truth.change, atol=2e-6)
    assert filled.known.all()


def test_what_follows_from_noised_values_is_a_guess_and_the_less_of_one_the_more_noise_there_is():
    truth = whole()
    hidden = one_in_each_column(truth.change.size)
    noise = np.random.default_rng(3).normal(0, 1, truth.change.size).astype(np.float32)
    signal = float(np.std(truth.change[LAST]))

    def error(deviation: float) -> float:
        noised = replace(
            truth, change=truth.change + np.float32(deviation) * noise, noise_deviation=deviation
        )
        filled = by_class_sums(with_zeros(hiding(noised, hidden)))
        np.testing.assert_array_equal(filled.known, ~hidden)
        return float(np.linalg.norm((filled.change - truth.change)[hidden]))

    of_zeros = float(np.linalg.norm(truth.change[hidden]))
    assert error(1e-3 * signal) < 0.05 * of_zeros
    assert error(0.3 * signal) < 0.9 * of_zeros
    # Columns of which nothing but noise is seen do not move the guesses.
    assert error(30 * signal) < 1.2 * of_zeros


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_any_mask_ends_with_columns_that_sum_right_and_no_worse_guesses(share):
    truth = whole(SEVERAL)
    hidden = np.random.default_rng(1).random(truth.change.size) < share
    hidden[0] = False
    guessed = with_zeros(hiding(truth, hidden))
    filled = by_class_sums(guessed)
    np.testing.assert_array_equal(filled.change[~hidden], truth.change[~hidden])
    assert not filled.known[hidden].all()
    last, true_last = (one.change[LAST][:1000].reshape(10, 100) for one in (filled, truth))
    np.testing.assert_allclose(last.sum(axis=0), true_last.sum(axis=0), atol=1e-5)
    error, before = (np.linalg.norm(one.change[LAST] - truth.change[LAST]) for one in (filled, guessed))
    assert error < before


def test_without_a_last_layer_nothing_follows():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Tanh())
    observed = trained(model, *drawn(2, seed=0))
    assert by_class_sums(observed) is observed


def test_own_data_says_more_than_nothing():
    torch.manual_seed(0)
    truth = trained(relu_model(), *drawn(60, seed=2))
    hidden = np.ones(truth.change.size, dtype=bool)
    hidden[0] = False
    unknown = hiding(truth, hidden)
    before = flatten(unknown.model)
    filled = with_own_expectation(unknown, digits().test_features, digits().test_labels, trials=10, seed=0)
    zeros = with_zeros(unknown)
    error, without = (np.linalg.norm(one.change - truth.change) for one in (filled, zeros))
    assert error < 0.7 * without
    np.testing.assert_array_equal(flatten(unknown.model), before)
    with pytest.raises(ParameterError, match="needs 60 samples"):
        with_own_expectation(unknown, digits().test_features[:9], digits().test_labels[:9], trials=1, seed=0)
