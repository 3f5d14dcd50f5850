"""Which layer makes the logits, wherever it stands in the model."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from audit.small_updates import ONE_STEP, drawn, relu_model, trained
from shieldfl.audit.attacks.labels import LastLayer, last_layer
from shieldfl.audit.views.observed_update import ObservedUpdate
from shieldfl.torch_bridge import flatten
from shieldfl.training.models import MODELS, build_model


class HeadFirst(nn.Module):
    """Defines its last layer before others, one of which has as many outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(10, 10, bias=False)
        self.body = nn.Linear(64, 10)

    def forward(self, samples: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(samples.flatten(1)).relu())


def of(model: nn.Module, shape: tuple[int, ...] = (1, 8, 8)) -> LastLayer | None:
    change = flatten(model)
    return last_layer(ObservedUpdate(model, change, change == change, ONE_STEP, 1, shape, 10))


def test_is_found_wherever_it_is_defined():
    torch.manual_seed(0)
    assert of(HeadFirst()) == LastLayer("head.weight", None)
    assert of(relu_model()) == LastLayer("3.weight", "3.bias")


@pytest.mark.parametrize("name", MODELS)
def test_every_model_of_the_package_has_one(name):
    model = build_model(name, (3, 32, 32), 10, seed=0)
    found = of(model, (3, 32, 32))
    assert found is not None
    assert found.bias == list(model.named_parameters())[-1][0]
    assert model.training


@pytest.mark.parametrize("tail", [nn.ReLU(), nn.LogSoftmax(dim=1), nn.BatchNorm1d(10)])
def test_what_comes_after_it_is_seen(tail):
    torch.manual_seed(0)
    if isinstance(tail, nn.BatchNorm1d):
        nn.init.constant_(tail.weight, 2.0)
    layer = nn.Linear(64, 10)
    nn.init.constant_(layer.bias, 1.0)
    assert of(nn.Sequential(nn.Flatten(), layer, tail)) is None


def test_the_only_label_is_the_negative_row():
    features, labels = drawn(1, seed=3)
    observed = trained(relu_model(), features, labels)
    found = last_layer(observed)
    assert found is not None
    rows = found.gradient(observed, found.weight).sum(axis=1)
    assert (rows < 0).sum() == 1
    assert found.only_label(observed) == int(labels)
