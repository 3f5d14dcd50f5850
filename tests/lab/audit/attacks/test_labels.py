"""Labels out of last layers: which layer that is, iLRG, and what is put where values are hidden."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from lab.audit.updates import ONE_STEP, digits, drawn, relu_model, trained
from shieldfl.errors import ParameterError
from shieldfl.lab.audit.attack import label_scores
from shieldfl.lab.audit.attacks.labels import (
    Ilrg,
    LastLayer,
    by_class_sums,
    guesses,
    last_layer,
    only_label,
    whole_counts,
    with_own_expectation,
)
from shieldfl.lab.audit.views.observed_update import ObservedUpdate
from shieldfl.lab.simulation.data import load_dataset
from shieldfl.learning import MODELS
from shieldfl.learning.networks import build_model
from shieldfl.methods.dict_pfl.dictionary_layers import factorise
from shieldfl.models.torch_bridge import flatten, load_flat
from shieldfl.settings import TrainingSettings


def test_an_update_has_as_many_numbers_as_the_model():
    update = trained(relu_model(), *drawn(1, seed=0))
    for other in ({"change": None}, *({name: np.ones(9)} for name in ("change", "known", "noise_deviation"))):
        with pytest.raises(ParameterError, match="7,510 parameters"):
            replace(update, **other)


class HeadFirst(nn.Module):
    """Defines its last layer before others, one of which has as many outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(10, 10, bias=False)
        self.body = nn.Linear(64, 10)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(samples.flatten(1)).relu())


def of(model: nn.Module, shape: tuple[int, ...] = (1, 8, 8)) -> LastLayer | None:
    change = flatten(model)
    return last_layer(ObservedUpdate(model, change, change == change, ONE_STEP, 1, shape, 10))


def test_is_found_wherever_it_is_defined():
    torch.manual_seed(0)
    assert of(HeadFirst()) == LastLayer("head", None, ("head.weight",), computed=False)
    assert of(relu_model()) == LastLayer("3", "3.bias", ("3.weight",), computed=False)


@pytest.mark.parametrize("name", MODELS)
def test_every_model_of_the_package_has_one(name):
    model = build_model(name, (3, 32, 32), 10, seed=0)
    found = of(model, (3, 32, 32))
    assert found.bias == list(model.named_parameters())[-1][0]
    assert model.training


@pytest.mark.parametrize("tail", [nn.ReLU(), nn.LogSoftmax(dim=1), nn.BatchNorm1d(10)])
def test_what_comes_after_it_is_seen(tail):
    torch.manual_seed(0)
    if isinstance(tail, nn.BatchNorm1d):
        nn.init.constant_(tail.weight, 2.0)
    layer = nn.Linear(64, 10)
    nn.init.constant_(layer.bias, 1.0)
    assert of(nn.Sequential(nn.Flatten(), layer, tail)) is None


def test_the_only_label_is_the_negative_row():
    features, labels = drawn(1, seed=3)
    observed = trained(relu_model(), features, labels)
    found = last_layer(observed)
    rows = found.weight_gradient(observed).sum(axis=1)
    assert (rows < 0).sum() == 1
    assert only_label(observed) == int(labels)


def weight_gradient(model: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    """(p - y) times the features below, the mean over a batch."""
    with torch.no_grad():
        wrong = model(features).softmax(dim=1) - nn.functional.one_hot(labels, 10)
        return (wrong.T @ model[:3](features) / len(labels)).numpy()


@pytest.mark.parametrize(("rank", "moved", "off"), [(10, 0.0, 1e-3), (10, 0.05, 1e-3), (4, 0.0, 0.5)])
def test_as_many_directions_as_classes_tell_all_and_fewer_the_nearest_that_fits(rank, moved, off):
    """Also of a table that has been trained already, where it is."""
    features, labels = drawn(16, seed=1)
    model = factorise(relu_model(), rank)
    load_flat(model, flatten(model) + np.float32(moved))
    observed = trained(model, features, labels)
    true = weight_gradient(observed.model, features, labels)
    assert last_layer(observed) is None
    layer = last_layer(observed, computed=True)
    assert layer.of == ("3.weight_dictionary.table",)
    assert layer.bias == "3.bias"
    found = layer.weight_gradient(observed)
    assert np.linalg.norm(found - true) < off * np.linalg.norm(true)
    np.testing.assert_allclose(found.sum(axis=0), 0, atol=1e-5)
    directions = observed.model[3].weight_dictionary.directions.numpy()
    np.testing.assert_allclose(directions.T @ found, directions.T @ true, atol=1e-4)


def test_labels_are_counted_of_factors_nearly_as_of_a_plain_layer():
    right = []
    for seed in range(10):
        features, labels = drawn(16, seed)
        observed = trained(factorise(relu_model(seed), 2), features, labels)
        assert Ilrg().inapplicable(observed) is None
        counts = Ilrg().recover(observed, 0).label_counts
        right.append(np.mean(counts == np.bincount(labels.numpy(), minlength=10)))
    assert np.mean(right) > 0.75


def test_layers_of_their_own_and_those_without_a_bias_are_none():
    samples = drawn(4, seed=0)
    assert not last_layer(trained(relu_model(), *samples), computed=True).computed
    torch.manual_seed(0)
    bare = factorise(nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False)))
    observed = trained(bare, *samples)
    assert last_layer(observed, computed=True) is None
    assert "Linear with a bias" in Ilrg().inapplicable(observed)


def scored(observed: ObservedUpdate, labels: torch.Tensor, attack: Ilrg | None = None) -> float:
    counts = (attack or Ilrg()).recover(observed, seed=0).label_counts
    assert counts.sum() == observed.samples
    return label_scores(counts, np.bincount(labels.numpy(), minlength=10).astype(np.int64))[1]


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_small_batches_are_counted_exactly(size):
    for seed in range(10):
        features, labels = drawn(size, seed)
        assert scored(trained(relu_model(seed), features, labels), labels) == 1.0


def test_counts_after_several_steps_with_momentum():
    training = TrainingSettings(local_epochs=2, batch_size=8, learning_rate=0.01, momentum=0.9)
    scores = []
    for seed in range(10):
        features, labels = drawn(16, seed)
        scores.append(scored(trained(relu_model(seed), features, labels, training), labels))
    assert np.mean(scores) > 0.8


def test_a_hidden_last_layer_leaves_nothing_but_an_even_guess():
    features, labels = drawn(10, seed=0)
    whole = trained(relu_model(), features, labels)
    known = np.ones(whole.change.size, dtype=bool)
    known[-1010:] = False
    observed = with_zeros(trained(relu_model(), features, labels, known=known))
    counts = Ilrg().recover(observed, seed=0).label_counts
    other = with_zeros(trained(relu_model(), features, (labels + 1) % 10, known=known))
    np.testing.assert_array_equal(counts, Ilrg().recover(other, seed=0).label_counts)


def test_says_where_it_cannot_be_tried():
    features, labels = drawn(2, seed=0)
    torch.manual_seed(0)
    for model in (
        nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False)),
        nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Tanh()),
        nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.BatchNorm1d(10)),
        nn.Sequential(nn.Conv2d(1, 10, kernel_size=8), nn.Flatten()),
    ):
        assert "outputs" in (Ilrg().inapplicable(trained(model, features, labels)) or "")
    assert Ilrg().inapplicable(trained(relu_model(), features, labels)) is None


def test_counts_are_rounded_to_their_sum():
    np.testing.assert_array_equal(whole_counts(np.array([1.4, 1.4, 0.2, -3.0]), 3), [2, 1, 0, 0])
    np.testing.assert_array_equal(whole_counts(np.array([-1.0, -2.0]), 3), [2, 1])
    for seed in range(20):
        rng = np.random.default_rng(seed)
        counts = whole_counts(rng.normal(size=7), 11)
        assert counts.sum() == 11
        assert counts.min() >= 0


def test_quotients_of_nothing_do_not_spoil_the_counts():
    # Larger batches have classes whose bias gradient is next to zero.
    scores = {longest: [] for longest in (None, 2.0)}
    for seed in range(20):
        features, labels = drawn(24, seed)
        observed = trained(relu_model(seed), features, labels)
        for longest, reached in scores.items():
            reached.append(scored(observed, labels, Ilrg(longest=longest)))
    assert np.mean(scores[2.0]) > 0.85
    assert np.mean(scores[2.0]) > np.mean(scores[None]) + 0.15


@pytest.mark.slow
@pytest.mark.parametrize(("size", "least"), [(16, 1.0), (32, 0.75), (64, 0.55)])
def test_reaches_on_mnist_what_the_paper_does(size, least, data_dir):
    data = load_dataset("mnist", data_dir)
    scores = []
    for seed in range(20):
        torch.manual_seed(seed)
        model = nn.Sequential(
            nn.Flatten(), nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
        )
        places = torch.randperm(60_000)[:size]
        labels = data.train_labels[places]
        scores.append(scored(trained(model, data.train_features[places], labels), labels))
    assert np.mean(scores) >= least


LAST = slice(-1010, None)  # of relu_model: the last layer's weight, 10 x 100, and bias
SEVERAL = TrainingSettings(local_epochs=2, batch_size=4, learning_rate=0.2, momentum=0.9, weight_decay=0.1)


def with_zeros(observed: ObservedUpdate) -> ObservedUpdate:
    return observed.filled(np.zeros_like(observed.change))


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


def test_the_last_exposed_value_stands_where_there_is_one():
    truth = whole()
    hidden = np.arange(truth.change.size) % 2 == 0
    exposed = np.full(truth.change.size, 7.0, dtype=np.float32)
    exposed[:10] = np.nan
    public = digits().test_features[:0], digits().test_labels[:0]
    *_, (form, filled) = guesses(hiding(truth, hidden), exposed, public, 0)
    assert form == "other rounds and class sums"
    np.testing.assert_array_equal(filled.change[:4], [0, truth.change[1], 0, truth.change[3]])
    np.testing.assert_array_equal(filled.change[10:12], [7.0, truth.change[11]])


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
