"""Simulated training against the client's own, and its slopes against differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from audit.small_updates import ONE_STEP, drawn, relu_model, sigmoid_model, trained
from shieldfl.audit.attacks.searches import SimulatedTraining
from shieldfl.audit.views.observed_update import ObservedUpdate
from shieldfl.settings import TrainingSettings
from shieldfl.torch_bridge import flatten
from shieldfl.training.models import build_model


@pytest.mark.parametrize(
    "training",
    [
        ONE_STEP,
        # One batch: in which order samples come within it does not matter.
        TrainingSettings(local_epochs=4, batch_size=8, learning_rate=0.3, momentum=0.9, weight_decay=0.05),
        TrainingSettings(local_epochs=3, batch_size=8, learning_rate=0.5, momentum=0.0),
    ],
)
def test_shows_the_gradient_that_the_client_shows(training):
    features, labels = drawn(6, seed=1)
    observed = trained(relu_model(), features, labels, training)
    simulated = SimulatedTraining(observed)
    torch.testing.assert_close(simulated.gradient(features, labels), simulated.observed, rtol=1e-3, atol=2e-6)


def test_takes_batches_as_they_stand():
    training = TrainingSettings(local_epochs=1, batch_size=2, learning_rate=0.5, momentum=0.9)
    features, labels = drawn(5, seed=2)
    observed = trained(relu_model(), features, labels, training)
    order = torch.randperm(5, generator=torch.Generator().manual_seed(0))  # as the client's, by its seed
    simulated = SimulatedTraining(observed)
    shown = simulated.observed
    torch.testing.assert_close(
        simulated.gradient(features[order], labels[order]), shown, rtol=1e-3, atol=2e-6
    )
    assert (simulated.gradient(features, labels) - shown).norm() > 0.01 * shown.norm()


def test_a_constant_gradient_is_told_whatever_the_steps_and_momentum():
    # The loss is linear in the bias where the probabilities do not move: a tiny rate.
    training = TrainingSettings(local_epochs=7, batch_size=8, learning_rate=1e-3, momentum=0.9)
    features, labels = drawn(8, seed=3)
    once, often = (trained(relu_model(), features, labels, one) for one in (ONE_STEP, training))
    assert often.steps == 7
    bias = slice(-10, None)
    np.testing.assert_allclose(often.gradient[bias], once.gradient[bias], rtol=0.02, atol=1e-4)


def test_only_known_positions_are_compared():
    features, labels = drawn(3, seed=4)
    whole = trained(sigmoid_model(), features, labels)
    known = np.random.default_rng(0).random(whole.change.size) < 0.3
    part = trained(sigmoid_model(), features, labels, known=known)
    everything, some = SimulatedTraining(whole), SimulatedTraining(part)
    places = torch.from_numpy(known)
    torch.testing.assert_close(some.observed, everything.observed[places])
    torch.testing.assert_close(some.gradient(features, labels), everything.gradient(features, labels)[places])


def test_slopes_are_those_of_differences():
    features, labels = drawn(2, seed=5)
    training = TrainingSettings(local_epochs=2, batch_size=2, learning_rate=0.5, momentum=0.9)
    simulated = SimulatedTraining(trained(sigmoid_model(), features, labels, training))
    direction = torch.randn(features.shape, generator=torch.Generator().manual_seed(0))

    def distance(samples: torch.Tensor) -> torch.Tensor:
        return (simulated.gradient(samples, labels) - 0.5 * simulated.observed).square().sum()

    samples = features.clone().requires_grad_()
    (slope,) = torch.autograd.grad(distance(samples), samples)
    ahead, behind = (distance(features + step * direction).item() for step in (1e-2, -1e-2))
    assert float((slope * direction).sum()) == pytest.approx((ahead - behind) / 2e-2, rel=0.02)


@pytest.mark.parametrize("name", ["tiny-vit", "simple-cnn"])
def test_models_with_attention_and_batch_norm_have_slopes_and_stay_as_they_are(name):
    model = build_model(name, (3, 32, 32), 10, seed=0)
    before = flatten(model), {key: value.clone() for key, value in model.state_dict().items()}
    size = before[0].size
    observed = ObservedUpdate(
        model, np.ones(size, np.float32), np.ones(size, bool), ONE_STEP, 2, (3, 32, 32), 10
    )
    samples = torch.rand(2, 3, 32, 32).requires_grad_()
    gradient = SimulatedTraining(observed).gradient(samples, torch.tensor([1, 7]))
    (slope,) = torch.autograd.grad(gradient.square().sum(), samples)
    assert slope.abs().sum() > 0
    assert all(torch.equal(value, before[1][key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert isinstance(model, nn.Module)


class _Branching(nn.Module):
    """Looks at its samples' values, which torch.func cannot follow for several at once."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.looked = 0

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        flat = self.layer(samples.flatten(1))
        if float(flat.detach().sum()) > 1e9:
            return -flat
        self.looked += 1
        return flat


class _Greedy(nn.Module):
    """Asks once for more memory than there is, where it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10)
        self.asks = False

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        if self.asks:
            self.asks = False
            torch.empty(2**47, dtype=torch.uint8)
        return self.layer(samples.flatten(1))


def starts(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """So many batches of one sample."""
    features, labels = drawn(count, seed=8)
    return features[:, None], labels[:, None]


def one_by_one(simulated: SimulatedTraining, samples: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.stack(
        [
            (simulated.gradient(own, target) - simulated.observed).square().sum()
            for own, target in zip(samples, targets, strict=True)
        ]
    )


@pytest.mark.parametrize("make", [sigmoid_model, _Branching])
def test_distances_of_several_are_those_of_each_also_where_they_cannot_be_run_at_once(make):
    model = make()
    simulated = SimulatedTraining(trained(model, *drawn(1, seed=7)))
    samples, targets = starts(3)
    samples.requires_grad_()
    found = simulated.distances(samples, targets)
    torch.testing.assert_close(found, one_by_one(simulated, samples, targets), rtol=1e-4, atol=1e-6)
    (slopes,) = torch.autograd.grad(found.sum(), samples)
    assert (slopes.flatten(1).abs().sum(dim=1) > 0).all()


def test_a_model_that_cannot_be_run_at_once_is_tried_once():
    simulated = SimulatedTraining(trained(_Branching(), *drawn(1, seed=7)))
    samples, targets = starts(3)
    model = simulated._model
    simulated.distances(samples, targets)
    before = model.looked
    simulated.distances(samples, targets)
    assert model.looked - before == 3


def test_memory_that_is_not_there_is_no_reason_to_go_on_with_one_after_another():
    simulated = SimulatedTraining(trained(_Greedy(), *drawn(1, seed=7)))
    simulated.distances(*starts(2))
    simulated._model.asks = True
    with pytest.raises(RuntimeError, match="memory"):
        simulated.distances(*starts(2))
