"""FedML-HE's sensitivity against its definition by second derivatives, and against a loop over samples."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from learning.sensitivity.second_order_oracle import second_order_sensitivity
from shieldfl.errors import ParameterError, RangeError
from shieldfl.learning.networks import VisionTransformer
from shieldfl.learning.scores import label_sensitivity
from shieldfl.models.torch_bridge import parameter_layout


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1),
        nn.BatchNorm2d(2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8, 3),
    )


CASES = {"mlp": (mlp, (6,)), "convolutions": (convolutions, (1, 4, 4))}


def case(name: str, samples: int) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(3)
    build, shape = CASES[name]
    model = build()
    model(torch.randn(32, *shape) * 2 + 1)  # BatchNorm's running statistics are not its initial ones
    model.eval()
    return model, torch.randn(samples, *shape), torch.randint(0, 3, (samples,))


@pytest.mark.parametrize("name", CASES)
def test_it_equals_the_second_order_definition(name: str) -> None:
    model, features, labels = case(name, 5)
    expected = second_order_sensitivity(model, features, labels)
    assert np.count_nonzero(expected) > expected.size / 2
    for batch_size in (1, 3, 100):
        scores = label_sensitivity(model, features, labels, batch_size=batch_size)
        assert scores.dtype == np.float32
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", CASES)
def test_the_oracle_differentiates_the_gradient_by_the_label(name: str) -> None:
    model, features, labels = case(name, 1)
    label = int(labels[0])
    flat = []
    for moved in (0.75, 1.25):  # the gradient is linear in y, so that any difference quotient is exact
        y = torch.zeros(1, 3)
        y[0, label] = moved
        loss = nn.functional.cross_entropy(model(features), y)
        flat.append(torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))]))
    quotient = ((flat[1] - flat[0]) / 0.5).abs().numpy()
    np.testing.assert_allclose(
        second_order_sensitivity(model, features, labels), quotient, rtol=1e-4, atol=1e-6
    )


def test_the_oracle_takes_single_positions() -> None:
    model, features, labels = case("mlp", 3)
    whole = second_order_sensitivity(model, features, labels)
    some = [0, 34, 35, whole.size - 1]
    np.testing.assert_array_equal(second_order_sensitivity(model, features, labels, some), whole[some])


def test_absolute_values_are_taken_before_the_mean() -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, 2)
    nn.init.zeros_(model.weight)
    nn.init.zeros_(model.bias)
    features = torch.randn(1, 4).repeat(2, 1)
    labels = torch.tensor([0, 1])  # opposite labels: the mean of the gradients is zero
    scores = label_sensitivity(model, features, labels)
    np.testing.assert_allclose(scores[:4], 0.5 * features[0].abs().numpy(), rtol=1e-6)
    np.testing.assert_allclose(scores[8:], 0.5, rtol=1e-6)


def test_the_model_is_handed_back_as_it_came_and_frozen_parameters_score_zero() -> None:
    model, features, labels = case("convolutions", 5)
    expected = label_sensitivity(model, features, labels)
    model.train()
    model[0].weight.requires_grad_(False)
    statistics = model[1].running_mean.clone()
    scores = label_sensitivity(model, features, labels)
    assert all(module.training for module in model.modules())
    assert torch.equal(model[1].running_mean, statistics)
    assert all(parameter.grad is None for parameter in model.parameters())
    (_, frozen), *_ = parameter_layout(model).slices()
    assert not scores[frozen].any()
    np.testing.assert_allclose(scores[frozen.stop :], expected[frozen.stop :], rtol=1e-6)


def test_fused_attention_is_differentiated_for_many_samples_at_once_and_without_a_warning() -> None:
    model = VisionTransformer((3, 8, 8), 10, width=16, depth=1)
    features, labels = torch.randn(4, 3, 8, 8), torch.arange(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        together = label_sensitivity(model, features, labels, batch_size=4)
    one_by_one = [label_sensitivity(model, features[[i]], labels[[i]], batch_size=1) for i in range(4)]
    np.testing.assert_allclose(together, np.mean(one_by_one, axis=0), rtol=1e-4, atol=1e-7)


def test_bad_input_is_refused() -> None:
    model, features, labels = case("mlp", 4)
    with pytest.raises(ParameterError, match="no data"):
        label_sensitivity(model, features[:0], labels[:0])
    with pytest.raises(ParameterError, match="3 labels"):
        label_sensitivity(model, features, labels[:3])
    with pytest.raises(ParameterError, match="batch_size"):
        label_sensitivity(model, features, labels, batch_size=0)
    features[2, 2] = float("nan")
    with pytest.raises(RangeError, match=r"'0\.weight'"):
        label_sensitivity(model, features, labels)


class _Wrapped(nn.Module):
    """Is no chain of layers: torch.func differentiates it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return self.inner(samples)


@pytest.mark.parametrize("make", [mlp, _Wrapped])
@pytest.mark.parametrize("label", [3, -1])
def test_labels_without_an_output_are_named_and_not_the_model(make, label) -> None:
    labels = torch.tensor([0, 1, label])
    with pytest.raises(ParameterError, match=f"a label is {label}, and the model has 3 outputs: .* 0 to 2"):
        label_sensitivity(make(), torch.rand(3, 6), labels)
