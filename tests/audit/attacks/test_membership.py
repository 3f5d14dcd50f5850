"""Shadow models and updates that tell members of small training sets from others, and scores that tell nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

from attack_references.membership import offline
from shieldfl.audit.attacks.membership import Shadows, confidence_scores, membership_figures, train_shadows
from shieldfl.errors import ParameterError
from shieldfl.settings import TrainingSettings
from shieldfl.simulation.data import load_dataset
from shieldfl.training.models import build_model
from shieldfl.training.sgd import train_locally

SHAPE = (1, 8, 8)


@pytest.fixture(scope="module")
def samples():
    """120 digits, a third of them under a wrong label: what is learnt of these is learnt by heart."""
    dataset = load_dataset("digits")
    labels = dataset.train_labels[:120].clone()
    labels[::3] = (labels[::3] + 1) % 10
    return dataset.train_features[:120], labels


@pytest.fixture(scope="module")
def shadows(samples):
    features, labels = samples
    settings = TrainingSettings(local_epochs=40, batch_size=30, learning_rate=0.05)

    def train(chosen: torch.Tensor, seed: int) -> nn.Module:
        model = build_model("mlp", SHAPE, 10, seed)
        train_locally(model, features[chosen], labels[chosen], settings, seed)
        return model

    return train_shadows(train, features, labels, models=20, seed=0)


def as_targets(shadows: Shadows, score) -> tuple[np.ndarray, np.ndarray]:
    """Each model in turn as the target of all others."""
    targets = range(len(shadows.scores))
    scores = [score(shadows.without(target), shadows.scores[target]) for target in targets]
    return np.concatenate(scores), shadows.included.ravel()


@pytest.mark.parametrize("score", [Shadows.online, offline])
def test_members_of_a_small_training_set_are_told_from_others(shadows, score):
    figures = membership_figures(*as_targets(shadows, score))
    assert figures.true_positives_at[0.01].low > 0.05
    assert figures.area.low > 0.6
    assert figures.advantage.low > 0.1


@pytest.mark.parametrize("score", [Shadows.online, offline])
def test_a_target_that_saw_none_of_them_gives_chance(samples, shadows, score):
    """Half of the candidates are called members by a coin: no score can know it."""
    members = np.random.default_rng(0).random(120) < 0.5
    scores = score(shadows, confidence_scores(build_model("mlp", SHAPE, 10, 99), *samples))
    figures = membership_figures(scores, members)
    assert figures.area.low < 0.5 < figures.area.high
    assert figures.advantage.low == 0.0


def test_every_candidate_is_in_half_of_the_models(shadows):
    assert (shadows.included.sum(axis=0) == 10).all()
    assert shadows.included.sum(axis=1).min() > 40


@pytest.mark.parametrize("models", [10, 80])
def test_gaussians_are_fitted_as_the_paper_says(models):
    """With few models deviations are one for all candidates, with many each has its own; a loop says the same."""
    generator = np.random.default_rng(1)
    scores = generator.normal(size=(models, 3)) * [1.0, 2.0, 3.0]
    included = np.arange(models)[:, None] % 2 == [[0, 1, 0]]
    shadows, target = Shadows(scores, included), np.array([0.3, -1.0, 2.0])
    ins = [scores[included[:, i], i] for i in range(3)]
    outs = [scores[~included[:, i], i] for i in range(3)]

    def deviations(groups) -> list[float]:
        own = [group.std(ddof=1) for group in groups]
        return own if models == 80 else [np.sqrt(np.mean(np.square(own)))] * 3

    expected = [
        norm.logpdf(target[i], ins[i].mean(), deviations(ins)[i])
        - norm.logpdf(target[i], outs[i].mean(), deviations(outs)[i])
        for i in range(3)
    ]
    assert shadows.online(target) == pytest.approx(expected)
    expected = [-norm.logsf(target[i], outs[i].mean(), deviations(outs)[i]) for i in range(3)]
    assert offline(shadows, target) == pytest.approx(expected)


def test_confidences_do_not_round_to_certainty():
    model = nn.Linear(2, 3)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[100.0, 0.0], [0.0, 0.0], [0.0, 1.0]]))
        model.bias.zero_()
    scores = confidence_scores(model, torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 2]))
    assert scores == pytest.approx([100 - np.log(2), 1 - np.log(2)])


def test_too_few_shadow_models_are_refused(samples):
    features, labels = samples
    for models in (2, 5):
        with pytest.raises(ParameterError, match="even"):
            train_shadows(lambda chosen, seed: nn.Identity(), features, labels, models, 0)
    in_all = np.ones((4, 3), dtype=bool)
    with pytest.raises(ParameterError, match="left out"):
        Shadows(np.zeros((4, 3)), in_all)
    with pytest.raises(ParameterError, match="2 shadow models"):
        Shadows(np.zeros((4, 3)), ~in_all).online(np.zeros(3))
    assert np.isfinite(offline(Shadows(np.zeros((4, 3)), ~in_all), np.zeros(3))).all()
