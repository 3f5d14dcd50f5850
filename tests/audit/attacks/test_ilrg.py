"""Labels from the last layer's gradient."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from audit.small_updates import drawn, relu_model, trained
from shieldfl.audit.attacks.labels import Ilrg, whole_counts, with_zeros
from shieldfl.audit.figures import label_scores
from shieldfl.audit.views.observed_update import ObservedUpdate
from shieldfl.settings import TrainingSettings
from shieldfl.simulation.data import load_dataset


def scored(observed: ObservedUpdate, labels: torch.Tensor, attack: Ilrg | None = None) -> float:
    counts = (attack or Ilrg()).recover(observed, seed=0).label_counts
    assert counts is not None
    assert counts.sum() == observed.samples
    return label_scores(counts, np.bincount(labels.numpy(), minlength=10).astype(np.int64)).number


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
