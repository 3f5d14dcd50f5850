"""Steps of SGD against its definition and torch's own optimizer."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from shieldfl.settings import TrainingSettings
from shieldfl.torch_bridge import flatten
from shieldfl.training.sgd import train_locally
from training.separable_samples import CLASSES, model, samples


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
    """Every other batch has a gradient for one head alone; the body has one each time."""

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


@pytest.mark.parametrize("weight_decay", [0.0, 1e-2])
def test_a_parameter_without_a_gradient_waits_as_with_torchs_own_optimizer(weight_decay: float) -> None:
    features, labels = samples(30)
    settings = TrainingSettings(3, 8, 0.1, 0.9, weight_decay)
    trained, expected = TwoHeads(), TwoHeads()
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
    assert flatten(trained).tobytes() != flatten(TwoHeads()).tobytes()
