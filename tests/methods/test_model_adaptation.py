"""What of a model each method trains."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.learning.local_trainer import train_locally
from shieldfl.learning.networks import build_model
from shieldfl.methods.registry import BUILT_IN, MethodSettings, adapt_model, count_trained
from shieldfl.models.torch_bridge import flatten, flatten_buffers
from shieldfl.settings import TrainingSettings

SHAPE = (1, 8, 8)


def model_of(name: str = "mlp") -> nn.Module:
    return build_model(name, SHAPE, 3, seed=0)


def train(model: nn.Module) -> None:
    generator = torch.Generator().manual_seed(4)
    features = torch.randn(20, *SHAPE, generator=generator)
    train_locally(
        model, features, torch.randint(0, 3, (20,), generator=generator), TrainingSettings(2, 8, 0.1), 0
    )


@pytest.mark.parametrize("name", [name for name in BUILT_IN if name not in ("top-2", "dict-pfl")])
def test_most_methods_train_the_model_itself(name):
    for mode in (True, False):
        model = model_of().train(mode)
        assert adapt_model(name, model, MethodSettings()) is model
        assert model.training == mode


@pytest.mark.parametrize(
    ("name", "ratio", "refused"),
    [
        ("alt-fl-pi", "0", False),
        ("alt-fl-pi", "1/999999999", True),
        ("alt-fl-pi", "1", True),
        ("alt-fl-si-dp", "0", True),
        ("alt-fl-si-dp", "1", False),
        ("alt-fl-si-he", "1/2", False),
        ("alt-fl-mp", "0", True),
        ("alt-fl-mp", "1", True),
        ("dp-sgd", None, True),
    ],
)
def test_the_ratio_decides_whether_any_round_trains_by_dp_sgd(name, ratio, refused):
    settings = MethodSettings().changed(name, {} if ratio is None else {"interleaving_ratio": ratio})
    model = model_of("simple-cnn")
    if refused:
        with pytest.raises(
            ParameterError, match=f"{name} cannot train this model.*BatchNorm2d.*by GroupNorm"
        ):
            adapt_model(name, model, settings)
    else:
        assert adapt_model(name, model, settings) is model


def test_only_the_last_layer_is_trained_and_batch_statistics_follow_the_data():
    model = model_of("simple-cnn")
    parameters, buffers = flatten(model), flatten_buffers(model)
    adapted = adapt_model("top-2", model, MethodSettings())
    last = 256 * 3 + 3
    assert count_trained(adapted) == last
    train(adapted)
    np.testing.assert_array_equal(flatten(adapted)[:-last], parameters[:-last])
    assert np.count_nonzero(flatten(adapted)[-last:] != parameters[-last:]) > last / 2
    assert (flatten_buffers(adapted) != buffers).any()
    np.testing.assert_array_equal(flatten(model), parameters)
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2, bias=False)),
        nn.Sequential(nn.Linear(4, 2, bias=False)),
        nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 2, bias=False)),
        nn.MultiheadAttention(4, 2, bias=False),
    ],
)
def test_a_last_layer_without_a_bias_is_refused(model):
    with pytest.raises(ParameterError, match="needs a bias where there is none"):
        adapt_model("top-2", model, MethodSettings())
