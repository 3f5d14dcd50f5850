"""Steps of SGD against its definition and torch's own optimizer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from learning.separable_samples import CLASSES, model, samples
from shieldfl.learning.scores import FisherAccumulator
from shieldfl.learning.sgd import _Sgd, _Taking, train_locally
from shieldfl.learning.stages import StageClock
from shieldfl.models.torch_bridge import flatten, parameter_layout
from shieldfl.settings import TrainingSettings


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.0, 0.0), (0.9, 1e-3)])
def test_full_batch_steps_equal_the_definition_of_sgd(momentum: float, weight_decay: float) -> None:
    features, labels = samples(20)
    trained, expected = model(), model()
    settings = TrainingSettings(4, 20, 0.1, momentum, weight_decay)
    train_locally(trained, features, labels, settings, seed=0)
    velocity = [torch.zeros_like(parameter) for parameter in expected.parameters()]
    for _ in range(4):
        loss = nn.functional.cross_entropy(expected(features), labels)
        gradients = torch.autograd.grad(loss, list(expected.parameters()))
        with torch.no_grad():
            for parameter, gradient, speed in zip(expected.parameters(), gradients, velocity, strict=True):
                speed.mul_(momentum).add_(gradient + weight_decay * parameter)
                parameter.sub_(0.1 * speed)
    np.testing.assert_allclose(flatten(trained), flatten(expected), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", ["mlp", "simple-cnn"])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 1e-2])
def test_steps_equal_torchs_own_optimizer_bit_for_bit(
    name: str, momentum: float, weight_decay: float
) -> None:
    features, labels = samples(30)
    trained, expected = model(name), model(name)
    train_locally(trained, features, labels, TrainingSettings(3, 8, 0.1, momentum, weight_decay), seed=4)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=momentum, weight_decay=weight_decay)
    generator = torch.Generator().manual_seed(4)
    for _ in range(3):
        for batch in torch.randperm(30, generator=generator).split(8):
            optimizer.zero_grad()
            nn.functional.cross_entropy(expected(features[batch]), labels[batch]).backward()
            optimizer.step()
    assert flatten(trained).tobytes() == flatten(expected).tobytes()


class TwoHeads(nn.Module):
    """The heads take turns: each has a gradient for every other batch, the body for all."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(3)
        self.body, self.heads = nn.Linear(36, 8), nn.ModuleList(nn.Linear(8, CLASSES) for _ in range(2))
        for parameter in self.parameters():
            parameter.data = torch.randn(parameter.shape, generator=generator) / 4
        self.batches = 0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.batches += 1
        return self.heads[self.batches % 2](self.body(batch.flatten(1)).relu())


class BaseAndDelta(nn.Module):
    """Whose two parameters autograd gives gradients that lie in one memory."""

    def __init__(self) -> None:
        super().__init__()
        drawn = torch.randn(2, CLASSES * 36, generator=torch.Generator().manual_seed(3)) / 8
        self.base, self.delta = nn.Parameter(drawn[0].reshape(CLASSES, 36)), nn.Parameter(drawn[1])

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        weight = self.base.view(CLASSES, 36) + self.delta.view(CLASSES, 36)
        return nn.functional.linear(batch.flatten(1), weight)


def test_gradients_of_two_parameters_may_lie_in_one_memory() -> None:
    model = BaseAndDelta()
    model(samples(4)[0]).square().sum().backward()
    assert model.base.grad.data_ptr() == model.delta.grad.data_ptr()


@pytest.mark.parametrize("made", [TwoHeads, BaseAndDelta])
@pytest.mark.parametrize("weight_decay", [0.0, 1e-2])
def test_unusual_modules_are_trained_as_by_torchs_own_optimizer(
    made: type[nn.Module], weight_decay: float
) -> None:
    features, labels = samples(30)
    settings = TrainingSettings(3, 8, 0.1, 0.9, weight_decay)
    trained, expected = made(), made()
    train_locally(trained, features, labels, settings, seed=4)
    train_locally(
        expected,
        features,
        labels,
        settings,
        seed=4,
        optimizer=lambda given: torch.optim.SGD(given, lr=0.1, momentum=0.9, weight_decay=weight_decay),
    )
    assert flatten(trained).tobytes() == flatten(expected).tobytes()
    assert flatten(trained).tobytes() != flatten(made()).tobytes()


def test_the_sum_of_gradients_is_zero_where_a_parameter_never_had_one() -> None:
    trained = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    unused, used = trained
    gradients = FisherAccumulator(parameter_layout(trained))
    steps = _Sgd(trained, TrainingSettings(1, 1, 0.1, 0.9), _Taking(trained, gradients, StageClock(), True))
    for value in (1.0, 3.0):
        for parameter in used.parameters():
            parameter.grad = torch.full_like(parameter, value)
        steps.step()
    steps.end()
    scores = gradients.scores()
    count = sum(parameter.numel() for parameter in unused.parameters())
    np.testing.assert_array_equal(scores[:count], 0.0)
    np.testing.assert_allclose(scores[count:], 4.0, rtol=1e-5)  # the mean's square
