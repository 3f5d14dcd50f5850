"""What DP-SGD refuses, before a model is changed: models that mix samples or keep something of them, odd settings."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import nn

from privacy.test_dp_sgd import CLASSES, SHAPE, model, samples, train
from shieldfl.errors import ParameterError


class Centred(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values - values.mean(dim=0)


class BatchNormed(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return nn.functional.batch_norm(values.flatten(1), None, None, training=True)


class Attending(nn.Module):
    """Attention among the samples of a batch."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        flat = values.flatten(1)
        return (flat @ flat.T / 36).softmax(dim=1) @ flat


class FromThree(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values - values.mean(dim=0) if len(values) > 2 else values


class Mixed(nn.Module):
    """Adds a sample that is drawn from the batch, in training."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + 0.1 * values[torch.randperm(len(values))] if self.training else values


class Ruled(torch.autograd.Function):
    """Mixes samples by a vmap rule of its own, as it does in a batch."""

    @staticmethod
    def forward(values: torch.Tensor) -> torch.Tensor:
        return values - values.mean(dim=0)

    @staticmethod
    def setup_context(*arguments: Any) -> None:
        pass

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient - gradient.mean(dim=0)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int], values: torch.Tensor) -> tuple[torch.Tensor, int]:
        return Ruled.apply(values.movedim(in_dims[0], 0).squeeze(1)).unsqueeze(1), 0


class OwnRule(nn.Module):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return Ruled.apply(values)  # type: ignore[no-any-return]


class Following(nn.Module):
    """Statistics by hand."""

    mean: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(SHAPE))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * values.detach().mean(dim=0)
        return values - self.mean


class Remembering(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bank: list[torch.Tensor] = []

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.bank.append(values.detach().mean(dim=0))
        return values - self.bank[0] * len(self.bank)


class Spare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(3, 3)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values


class Last(nn.Module):
    """The last outputs of a recurrent layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return self.layer(values)[0][:, -1]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (nn.BatchNorm2d(1), "BatchNorm2d.*GroupNorm"),
        (nn.BatchNorm2d(1, affine=False), "BatchNorm2d.*GroupNorm"),
        (nn.BatchNorm2d(1, affine=False, track_running_stats=False), "BatchNorm2d.*GroupNorm"),
        (nn.InstanceNorm2d(1, track_running_stats=True), "InstanceNorm2d.*GroupNorm"),
        (
            nn.Sequential(nn.Flatten(1, 2), Last(nn.GRU(6, 36, batch_first=True))),
            "'0.1.layer' .GRU.*on its own",
        ),
        (Centred(), "layer '0' .Centred. gives a sample other outputs beside others"),
        (BatchNormed(), "layer '0' .BatchNormed.*(on its own|beside others)"),
        (Attending(), "layer '0' .Attending. gives a sample other outputs beside others"),
        (FromThree(), "layer '0' .FromThree. gives a sample other outputs beside others"),
        (Mixed(), "gives a sample other outputs beside others"),
        (OwnRule(), "'2.weight' of a sample depends on the others"),
        (Following(), "buffer '0.mean' keeps a statistic"),
        (Remembering(), "keeps something from one batch to the next"),
        (Spare(), "'0.spare.weight' is trained, and the loss does not depend on it"),
        (nn.Flatten(), "no parameter"),
    ],
)
def test_what_cannot_be_trained_privately_is_refused(layer: nn.Module, message: str) -> None:
    features, labels = samples(10)
    rest = [] if message == "no parameter" else [nn.Flatten(), nn.Linear(36, CLASSES)]
    network = nn.Sequential(layer, *rest)
    state = copy.deepcopy(network.state_dict())
    with pytest.raises(ParameterError, match=message):
        train(network, features, labels)
    assert all(torch.equal(value, state[key]) for key, value in network.state_dict().items())


@pytest.mark.parametrize(
    "changed",
    [
        {"noise_multiplier": -1.0},
        {"noise_multiplier": math.nan},
        {"noise_multiplier": math.inf},
        {"max_grad_norm": 0.0},
        {"max_grad_norm": math.nan},
    ],
)
def test_impossible_settings_are_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        train(model("linear"), *samples(5), **changed)


def test_samples_without_labels_are_refused() -> None:
    features, labels = samples(5)
    for few_features, few_labels in ((features[:0], labels[:0]), (features, labels[:3])):
        with pytest.raises(ParameterError, match="label for each"):
            train(model("linear"), few_features, few_labels)


def test_a_model_that_was_trained_on_one_sample_is_tried_again_on_more() -> None:
    features, labels = samples(6)
    mixing = nn.Sequential(Centred(), nn.Flatten(), nn.Linear(math.prod(SHAPE), CLASSES))
    train(mixing, features[:1], labels[:1])
    with pytest.raises(ParameterError, match="beside others than alone"):
        train(mixing, features, labels)
