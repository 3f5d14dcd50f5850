"""The gradient of all of a client's data against a loop over its samples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from shieldfl.errors import ParameterError, RangeError
from shieldfl.learning.scores import full_batch_gradient


def small_model(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


def samples(count: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, 5, generator=generator), torch.randint(0, 3, (count,), generator=generator)


def mean_of_sample_gradients(model: nn.Module, features: torch.Tensor, labels: torch.Tensor) -> np.ndarray:
    total = 0.0
    for row in range(len(features)):
        loss = nn.functional.cross_entropy(model(features[row : row + 1]), labels[row : row + 1])
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        total = total + torch.cat([gradient.reshape(-1) for gradient in gradients]).double().numpy()
    return total / len(features)


@pytest.mark.parametrize("batch_size", [1, 4, 11, 100])
def test_is_the_mean_over_samples_whatever_the_batch(batch_size):
    model = small_model()
    features, labels = samples(11)
    gradient = full_batch_gradient(model, features, labels, batch_size)
    assert gradient.dtype == np.float32
    assert (gradient < 0.0).any()
    assert (gradient > 0.0).any()
    np.testing.assert_allclose(
        gradient, mean_of_sample_gradients(model, features, labels), rtol=1e-5, atol=1e-8
    )


def test_leaves_gradients_modes_and_statistics_alone():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    model.train()
    model[2].eval()
    model[0].weight.grad = torch.full_like(model[0].weight, 7.0)
    statistics = model[1].running_mean.clone()
    features, labels = samples(9)
    first = full_batch_gradient(model, features, labels, 4)
    np.testing.assert_array_equal(first, full_batch_gradient(model, features, labels, 4))
    assert [module.training for module in model] == [True, True, False, True]
    assert torch.equal(model[1].running_mean, statistics)
    assert (model[0].weight.grad == 7.0).all()
    assert model[3].weight.grad is None


def test_frozen_and_unused_parameters_are_zero():
    model = small_model()
    model[0].weight.requires_grad_(False)
    gradient = full_batch_gradient(model, *samples(6))
    assert not gradient[:20].any()
    assert gradient[20:].any()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    assert not full_batch_gradient(model, *samples(6)).any()


class HalfUsed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.idle = nn.Linear(5, 3)
        self.used = nn.Linear(5, 3)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return self.used(features)


def test_a_layer_that_is_never_used_is_zero():
    gradient = full_batch_gradient(HalfUsed(), *samples(6))
    assert not gradient[:18].any()
    assert gradient[18:].any()


def test_refuses_bad_input():
    model = small_model()
    features, labels = samples(4)
    with pytest.raises(ParameterError, match="no data"):
        full_batch_gradient(model, features[:0], labels[:0])
    with pytest.raises(ParameterError, match="3 labels"):
        full_batch_gradient(model, features, labels[:3])
    with pytest.raises(ParameterError, match="batch_size"):
        full_batch_gradient(model, features, labels, batch_size=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_bad_sample_names_the_layer(bad):
    features, labels = samples(4)
    features[2, 2] = bad
    model = small_model()
    with pytest.raises(RangeError, match=r"'0\.weight'"):
        full_batch_gradient(model, features, labels)
    assert model.training
