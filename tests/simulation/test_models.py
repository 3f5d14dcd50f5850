"""The models must be the papers', by their parameter counts and by what they compute."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.simulation.models import MODELS, build_model, default_model
from shieldfl.torch_bridge import flatten, flatten_buffers


def mlp_parameters(shape: tuple[int, ...], classes: int) -> int:
    return (math.prod(shape) + 1) * 256 + (256 + 1) * 128 + (128 + 1) * classes


def simple_cnn_parameters(shape: tuple[int, ...], classes: int) -> int:
    channels, height, width = shape
    convolutions = (channels * 9 + 1) * 32 + (32 * 9 + 1) * 64
    norms = 2 * 32 + 2 * 64
    features = 64 * (height // 4) * (width // 4)
    return convolutions + norms + (features + 1) * 256 + (256 + 1) * classes


def linear_parameters(shape: tuple[int, ...], classes: int) -> int:
    return (math.prod(shape) + 1) * classes


COUNTS = {"mlp": mlp_parameters, "simple-cnn": simple_cnn_parameters, "linear": linear_parameters}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("shape", "classes"), [((3, 32, 32), 100), ((1, 28, 28), 10), ((1, 9, 7), 2)])
def test_parameter_count_follows_the_formula(name: str, shape: tuple[int, ...], classes: int) -> None:
    assert flatten(build_model(name, shape, classes, 0)).size == COUNTS[name](shape, classes)


def test_the_papers_mlp_has_its_known_size() -> None:
    assert flatten(build_model("mlp", (1, 28, 28), 10, 0)).size == 235_146


@pytest.mark.parametrize("name", MODELS)
def test_logits_have_one_column_per_class(name: str) -> None:
    model = build_model(name, (3, 12, 8), 7, 0)
    logits = model(torch.randn(5, 3, 12, 8))
    assert logits.shape == (5, 7)
    assert bool((logits < 0).any())
    assert not torch.allclose(logits.exp().sum(dim=1), torch.ones(5))


def test_only_the_cnn_has_running_statistics() -> None:
    sizes = {name: flatten_buffers(build_model(name, (1, 8, 8), 10, 0)).size for name in MODELS}
    assert sizes == {"linear": 0, "mlp": 0, "simple-cnn": 2 * (32 + 64)}


def test_the_cnn_follows_table_7() -> None:
    kinds = [type(layer) for layer in build_model("simple-cnn", (3, 32, 32), 10, 0)]  # type: ignore[arg-type]
    block = [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d]
    assert kinds == [*block, *block, nn.Flatten, nn.Linear, nn.ReLU, nn.Linear]


@pytest.mark.parametrize("name", MODELS)
def test_seed_decides_the_weights_and_nothing_else_changes(name: str) -> None:
    torch.manual_seed(11)
    first = flatten(build_model(name, (1, 8, 8), 10, 5))
    after_build = torch.rand(3)
    torch.manual_seed(11)
    assert torch.equal(after_build, torch.rand(3))
    np.testing.assert_array_equal(first, flatten(build_model(name, (1, 8, 8), 10, 5)))
    assert not np.array_equal(first, flatten(build_model(name, (1, 8, 8), 10, 6)))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "message"),
    [
        ("resnet", (1, 8, 8), 10, "choose one of linear, mlp, simple-cnn"),
        ("simple-cnn", (64,), 10, "simple-cnn needs images"),
        ("simple-cnn", (3, 3, 32), 10, "simple-cnn needs images"),
        ("mlp", (), 10, "positive sides"),
        ("mlp", (0, 8), 10, "positive sides"),
        ("mlp", (1, 8, 8), 1, "2 classes"),
    ],
)
def test_impossible_models_are_refused(name: str, shape: tuple[int, ...], classes: int, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        build_model(name, shape, classes, 0)


def test_defaults_follow_the_paper() -> None:
    names = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100")
    assert [default_model(name) for name in names] == ["mlp"] * 3 + ["simple-cnn"] * 2
