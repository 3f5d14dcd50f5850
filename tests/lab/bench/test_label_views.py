"""What masks, sizes and updates tell of clients' labels, and that views without anything in them tell nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from attack_references.label_views import infer_labels, update_view
from lab.audit.updates import observed_step, positions_of
from shieldfl.errors import ParameterError
from shieldfl.lab.audit.attacks.label_distribution import (
    InferenceFigures,
    LabelInference,
    PlayedClients,
    last_weights,
    mask_view,
)
from shieldfl.lab.simulation.data import load_dataset
from shieldfl.learning.networks import build_model
from shieldfl.learning.scores import taylor_sensitivity
from shieldfl.masks import top_k
from shieldfl.models.torch_bridge import parameter_layout

MODEL = build_model("mlp", (1, 8, 8), 10, 0)
LAYOUT = parameter_layout(MODEL)
SIZES = {"played": 80, "attacked": 40, "samples": 40}


@pytest.fixture(scope="module")
def halves():
    dataset = load_dataset("digits")
    return (
        (dataset.train_features[:700], dataset.train_labels[:700]),
        (dataset.train_features[700:], dataset.train_labels[700:]),
    )


def sensitive_positions(features: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    return top_k(taylor_sensitivity(MODEL, features, labels), LAYOUT.size // 10).to_bool()


def test_positions_chosen_by_sensitivity_tell_of_labels(halves):
    def view(features, labels, seed):
        return mask_view(sensitive_positions(features, labels), LAYOUT, 10)

    figures = infer_labels(view, *halves, 10, **SIZES)
    assert figures.gain[1] > 0
    assert figures.correlation[1] > 0.3
    assert figures.error < figures.error_of_guess


def test_random_positions_and_sizes_that_are_all_the_same_tell_nothing(halves):
    def at_random(features, labels, seed):
        return mask_view(np.random.default_rng(seed).random(LAYOUT.size) < 0.1, LAYOUT, 10)

    def size(features, labels, seed):
        return np.array([4096.0 + 32 * len(features)])

    for view in (at_random, size):
        figures = infer_labels(view, *halves, 10, **SIZES)
        assert figures.gain[1] <= 0
        assert figures.correlation[1] < 0.1


def test_the_last_layer_tells_most_and_nothing_where_it_is_hidden(halves):
    def seen(hidden: tuple[str, ...]):
        def view(features, labels, seed):
            observed = observed_step(MODEL, features, labels)
            return update_view(replace(observed, known=~positions_of(observed, *hidden)))

        return infer_labels(view, *halves, 10, **SIZES)

    assert seen(()).correlation[1] > 0.9
    assert seen(("5.bias",)).correlation[1] > 0.5
    hidden = seen(("5.weight", "5.bias"))
    assert hidden.gain == (0.0, 0.0, 0.0)
    assert hidden.error == pytest.approx(hidden.error_of_guess)


def test_figures_of_perfect_and_of_worse_than_useless_predictions():
    truth = np.random.default_rng(0).dirichlet(np.ones(4), size=30)
    guess = np.full(4, 0.25)
    perfect = InferenceFigures.of(truth, truth, guess, seed=0)
    assert (perfect.error, perfect.correlation[0]) == (0.0, pytest.approx(1.0))
    assert perfect.gain[0] == pytest.approx(perfect.error_of_guess)
    opposite = InferenceFigures.of(2 * guess - truth, truth, guess, seed=0)
    assert opposite.gain[2] < 0
    assert opposite.correlation[2] < 0


def test_played_clients_have_the_labels_that_are_stated(halves):
    labels = halves[0][1]
    clients = PlayedClients.drawn(labels, 10, 20, 30, alpha=0.3, seed=0)
    assert clients.positions.shape == (20, 30)
    counted = [np.bincount(labels[own], minlength=10) / 30 for own in clients.positions]
    assert np.array_equal(counted, clients.distributions)
    assert clients.distributions.max() > 0.5


def test_predictions_are_distributions():
    generator = np.random.default_rng(0)
    views, distributions = generator.normal(size=(20, 3)), generator.dirichlet(np.ones(4), size=20)
    predicted = LabelInference.fitted(views, distributions).predicted(1e3 * views)
    assert (predicted >= 0).all()
    assert np.allclose(predicted.sum(axis=1), 1)


def test_views_have_the_size_that_they_state():
    chosen = np.zeros(LAYOUT.size, dtype=bool)
    chosen[dict(LAYOUT.slices())["5.weight"]] = True
    view = mask_view(chosen, LAYOUT, 10)
    assert view.tolist() == [0, 0, 0, 0, 1, 0, *[1] * 10]
    with pytest.raises(ParameterError, match="flags"):
        mask_view(chosen[1:], LAYOUT, 10)
    bare = parameter_layout(nn.Conv2d(1, 1, 2, bias=False))
    assert mask_view(np.ones(4, dtype=bool), bare, 10).tolist() == [1]
    assert last_weights(bare, 10) is None


def test_what_cannot_be_played_is_refused(halves):
    labels = halves[0][1]
    for clients, samples, alpha in ((0, 5, 1.0), (5, 0, 1.0), (5, 5, 0.0)):
        with pytest.raises(ParameterError):
            PlayedClients.drawn(labels, 10, clients, samples, alpha, 0)
    with pytest.raises(ParameterError, match="class without"):
        PlayedClients.drawn(labels, 11, 5, 5, 1.0, 0)
    with pytest.raises(ParameterError, match="2 attacked"):
        infer_labels(lambda *_: np.zeros(1), *halves, 10, attacked=1)
    with pytest.raises(ParameterError, match="3 clients"):
        LabelInference.fitted(np.zeros((2, 1)), np.ones((2, 1)))
