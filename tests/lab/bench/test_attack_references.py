"""What attacks and figures of bench/attack_references tell, and that they tell nothing where there is nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from attack_references.label_floors import label_floors
from attack_references.label_views import infer_labels, update_view
from attack_references.membership import update_alignment
from attack_references.structural_similarity import ssim
from lab.audit.updates import observed_step, positions_of
from shieldfl.errors import ParameterError
from shieldfl.lab.audit.attacks.membership import (
    correlation_with_truth,
    last_weights,
    mask_view,
    membership_figures,
    played_clients,
    predicted_distributions,
)
from shieldfl.lab.simulation.data import load_dataset
from shieldfl.learning.networks import build_model
from shieldfl.learning.scores import taylor_sensitivity
from shieldfl.masks import top_k
from shieldfl.models.torch_bridge import parameter_layout


@pytest.mark.parametrize(("classes", "samples", "everything"), [(100, 200, 0.866), (10, 30, 0.958)])
def test_floors_of_uniform_labels(classes, samples, everything):
    rng = np.random.default_rng(0)
    floors = [
        label_floors(np.bincount(rng.integers(classes, size=samples), minlength=classes)) for _ in range(400)
    ]
    mean = {name: np.mean([floor[name][0] for floor in floors]) for name in floors[0]}
    assert mean["everything present"] == pytest.approx(everything, abs=0.005)
    assert mean["nothing present"] == pytest.approx(1 - everything, abs=0.005)


def test_the_even_guess_scores_numbers_too():
    assert label_floors(np.array([3, 3, 0, 2]))["everything present"][1] == 0.25
    assert label_floors(np.array([2, 2, 2, 6]))["everything present"][1] == 0.0
    assert label_floors(np.array([0, 0, 1]))["everything present"][1] == pytest.approx(1 / 3)


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

    (_, low, _), error, without = infer_labels(view, *halves, 10, **SIZES)
    assert low > 0.3
    assert error < without


def test_random_positions_and_sizes_that_are_all_the_same_tell_nothing(halves):
    def at_random(features, labels, seed):
        return mask_view(np.random.default_rng(seed).random(LAYOUT.size) < 0.1, LAYOUT, 10)

    def size(features, labels, seed):
        return np.array([4096.0 + 32 * len(features)])

    for view in (at_random, size):
        (_, low, _), *_ = infer_labels(view, *halves, 10, **SIZES)
        assert low < 0.1


def test_the_last_layer_tells_most_and_nothing_where_it_is_hidden(halves):
    def seen(hidden: tuple[str, ...]):
        def view(features, labels, seed):
            observed = observed_step(MODEL, features, labels)
            return update_view(replace(observed, known=~positions_of(observed, *hidden)))

        return infer_labels(view, *halves, 10, **SIZES)

    assert seen(())[0][1] > 0.9
    assert seen(("5.bias",))[0][1] > 0.5
    correlation, error, without = seen(("5.weight", "5.bias"))
    assert correlation == (0.0, 0.0, 0.0)
    assert error == pytest.approx(without)


def test_figures_of_perfect_and_of_worse_than_useless_predictions():
    truth = np.random.default_rng(0).dirichlet(np.ones(4), size=30)
    guess = np.full(4, 0.25)
    assert correlation_with_truth(truth, truth, guess, seed=0)[0] == pytest.approx(1.0)
    assert correlation_with_truth(2 * guess - truth, truth, guess, seed=0)[2] < 0


def test_played_clients_have_the_labels_that_are_stated(halves):
    labels = halves[0][1]
    positions, distributions = played_clients(labels, 10, 20, 30, alpha=0.3, seed=0)
    assert positions.shape == (20, 30)
    counted = [np.bincount(labels[own], minlength=10) / 30 for own in positions]
    assert np.array_equal(counted, distributions)
    assert distributions.max() > 0.5


def test_predictions_are_distributions():
    generator = np.random.default_rng(0)
    views, distributions = generator.normal(size=(20, 3)), generator.dirichlet(np.ones(4), size=20)
    predicted = predicted_distributions(views, distributions, 1e3 * views)
    assert (predicted >= 0).all()
    assert np.allclose(predicted.sum(axis=1), 1)


def test_views_have_the_size_that_they_state():
    chosen = np.zeros(LAYOUT.size, dtype=bool)
    chosen[dict(LAYOUT.slices())["5.weight"]] = True
    view = mask_view(chosen, LAYOUT, 10)
    assert view.tolist() == [0, 0, 0, 0, 1, 0, *[1] * 10]
    bare = parameter_layout(nn.Conv2d(1, 1, 2, bias=False))
    assert mask_view(np.ones(4, dtype=bool), bare, 10).tolist() == [1]
    assert last_weights(bare, 10) is None


def test_what_cannot_be_played_is_refused(halves):
    labels = halves[0][1]
    with pytest.raises(ParameterError, match="class without"):
        played_clients(labels, 11, 5, 5, 1.0, 0)
    with pytest.raises(ParameterError, match="2 attacked"):
        infer_labels(lambda *_: np.zeros(1), *halves, 10, attacked=1)


def images(count: int, seed: int = 0, shape: tuple[int, ...] = (2, 14, 13)) -> torch.Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def test_ssim_is_that_of_its_definition():
    """Window by window, as Wang et al. write it."""
    true, found = images(1), images(1, seed=1)
    bell = np.exp(-((np.arange(11) - 5.0) ** 2) / (2 * 1.5**2))
    weights = np.outer(bell, bell) / np.outer(bell, bell).sum()
    values = []
    for channel in range(2):
        for row in range(4):
            for column in range(3):
                x, y = (
                    one[0, channel, row : row + 11, column : column + 11].double().numpy()
                    for one in (found, true)
                )
                mean_x, mean_y = (weights * x).sum(), (weights * y).sum()
                var_x, var_y = (weights * (x - mean_x) ** 2).sum(), (weights * (y - mean_y) ** 2).sum()
                both = (weights * (x - mean_x) * (y - mean_y)).sum()
                c1, c2 = 0.01**2, 0.03**2
                values.append(
                    (2 * mean_x * mean_y + c1)
                    * (2 * both + c2)
                    / ((mean_x**2 + mean_y**2 + c1) * (var_x + var_y + c2))
                )
    assert float(ssim(found, true, (0.0, 1.0))) == pytest.approx(np.mean(values), rel=1e-9)
    assert ssim(true, true, (0.0, 1.0)).tolist() == pytest.approx([1.0])


SHAPE = (1, 8, 8)


@pytest.fixture(scope="module")
def step():
    """One step on 30 digits, and 60 candidates of which they are the first half."""
    dataset = load_dataset("digits")
    features, labels = dataset.train_features[200:260], dataset.train_labels[200:260]
    model = build_model("mlp", SHAPE, 10, 3)
    return observed_step(model, features[:30], labels[:30]), features, labels, np.arange(60) < 30


@pytest.mark.parametrize("share", [1.0, 0.1])
def test_an_update_points_to_the_samples_that_it_came_from(step, share):
    observed, features, labels, members = step
    known = np.random.default_rng(0).random(observed.change.size) < share
    hidden = replace(observed, known=known, change=np.where(known, observed.change, np.float32(1e3)))
    (_, low, _), *_ = membership_figures(update_alignment(hidden, features, labels), members)
    assert low > 0.55


def test_an_update_under_noise_points_nowhere(step):
    observed, features, labels, members = step
    noise = np.random.default_rng(0).normal(0, 10, observed.change.size).astype(np.float32)
    drowned = replace(observed, change=observed.change + noise)
    (_, low, high), *_ = membership_figures(update_alignment(drowned, features, labels), members)
    assert low < 0.5 < high


def test_cosines_are_those_of_full_gradients(step):
    observed, features, labels, _ = step
    model = observed.model
    loss = nn.functional.cross_entropy(model(features[5:6]), labels[5:6])
    own = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(model.parameters()))])
    expected = torch.nn.functional.cosine_similarity(own, torch.from_numpy(observed.gradient), dim=0)
    assert update_alignment(observed, features, labels, batch_size=7)[5] == pytest.approx(
        float(expected), abs=1e-5
    )
