"""The models must be the papers', by their parameter counts and by what they compute."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.learning import MODELS
from shieldfl.learning.networks import build_model, default_model
from shieldfl.models.torch_bridge import flatten, flatten_buffers


def mlp_parameters(shape: tuple[int, ...], classes: int) -> int:
    return (math.prod(shape) + 1) * 256 + (256 + 1) * 128 + (128 + 1) * classes


def simple_cnn_parameters(shape: tuple[int, ...], classes: int) -> int:
    channels, height, width = shape
    convolutions = (channels * 9 + 1) * 32 + (32 * 9 + 1) * 64
    norms = 2 * 32 + 2 * 64
    features = 64 * (height // 4) * (width // 4)
    return convolutions + norms + (features + 1) * 256 + (256 + 1) * classes


def lenet5_parameters(shape: tuple[int, ...], classes: int) -> int:
    channels, height, width = shape
    convolutions = (channels * 25 + 1) * 6 + (6 * 25 + 1) * 16
    features = 16 * (height // 4 - 2) * (width // 4 - 2)
    return convolutions + (features + 1) * 120 + (120 + 1) * 84 + (84 + 1) * classes


def vit_parameters(patch: int, width: int, depth: int) -> Callable[[tuple[int, ...], int], int]:
    def parameters(shape: tuple[int, ...], classes: int) -> int:
        channels, height, rows = shape
        patches = (channels * patch**2 + 1) * width + (height // patch) * (rows // patch) * width
        attention = (width + 1) * 3 * width + (width + 1) * width
        mlp, norm = (width + 1) * 4 * width + (4 * width + 1) * width, 2 * width
        return patches + depth * (attention + mlp + 2 * norm) + norm + (width + 1) * classes

    return parameters


COUNTS = {
    "mlp": mlp_parameters,
    "small-mlp": lambda shape, classes: (math.prod(shape) + 1) * 32 + (32 + 1) * classes,
    "simple-cnn": simple_cnn_parameters,
    "linear": lambda shape, classes: (math.prod(shape) + 1) * classes,
    "lenet5": lenet5_parameters,
    "small-vit": vit_parameters(4, 128, 6),
    "tiny-vit": vit_parameters(8, 64, 4),
}


SHAPES = [((3, 32, 32), 100), ((1, 28, 28), 10), ((2, 12, 16), 2), ((2, 16, 24), 3)]


@pytest.mark.parametrize(
    ("name", "shape", "classes"),
    [
        (name, shape, classes)
        for name in MODELS
        for shape, classes in SHAPES
        if name != "tiny-vit" or not any(side % 8 for side in shape[1:])
    ],
)
def test_parameter_count_follows_the_formula(name: str, shape: tuple[int, ...], classes: int) -> None:
    assert flatten(build_model(name, shape, classes, 0)).size == COUNTS[name](shape, classes)


@pytest.mark.parametrize("shape", [(1, 9, 7), (3, 4, 5)])
def test_sides_need_no_common_divisor_for_the_simple_cnn(shape: tuple[int, ...]) -> None:
    model = build_model("simple-cnn", shape, 2, 0)
    assert flatten(model).size == simple_cnn_parameters(shape, 2)
    assert model.eval()(torch.zeros(1, *shape)).shape == (1, 2)


def test_the_papers_models_have_their_known_sizes() -> None:
    assert flatten(build_model("lenet5", (3, 32, 32), 10, 0)).size == 83_126  # Alt-FL's
    assert flatten(build_model("mlp", (1, 28, 28), 10, 0)).size == 235_146  # SelectiveShield's


def test_lenet_takes_its_smallest_and_odd_images() -> None:
    for shape in ((1, 12, 12), (3, 13, 31)):
        assert build_model("lenet5", shape, 4, 0)(torch.zeros(2, *shape)).shape == (2, 4)


def test_the_transformer_sees_where_patches_are() -> None:
    model = build_model("small-vit", (1, 8, 8), 3, 0)
    image = torch.randn(1, 1, 8, 8)
    swapped = torch.cat((image[:, :, 4:], image[:, :, :4]), dim=2)
    assert not torch.allclose(model(image), model(swapped), atol=1e-5)
    with torch.no_grad():
        model.get_parameter("positions").zero_()
    torch.testing.assert_close(model(image), model(swapped))


def test_the_transformers_attention_is_torchs() -> None:
    """Its weights in torch's own attention layer give the same."""
    attention = build_model("small-vit", (1, 8, 8), 3, 0).get_submodule("blocks.0.attention")
    theirs = nn.MultiheadAttention(128, 4, batch_first=True)
    qkv, projection = attention.get_submodule("qkv"), attention.get_submodule("projection")
    theirs.load_state_dict(
        {
            "in_proj_weight": qkv.weight,
            "in_proj_bias": qkv.bias,
            "out_proj.weight": projection.weight,
            "out_proj.bias": projection.bias,
        }
    )
    tokens = torch.randn(2, 5, 128)
    torch.testing.assert_close(attention(tokens), theirs(tokens, tokens, tokens)[0])


@pytest.mark.parametrize("name", MODELS)
def test_logits_have_one_column_per_class(name: str) -> None:
    model = build_model(name, (3, 16, 24), 7, 0)
    logits = model(torch.randn(5, 3, 16, 24))
    assert logits.shape == (5, 7)
    assert bool((logits < 0).any())
    assert not torch.allclose(logits.exp().sum(dim=1), torch.ones(5))


def test_only_the_simple_cnn_has_running_statistics() -> None:
    sizes = {name: flatten_buffers(build_model(name, (1, 16, 16), 10, 0)).size for name in MODELS}
    assert sizes == {name: 2 * (32 + 64) if name == "simple-cnn" else 0 for name in MODELS}


def test_the_cnn_follows_table_7() -> None:
    kinds = [type(layer) for layer in build_model("simple-cnn", (3, 32, 32), 10, 0)]  # type: ignore[arg-type]
    block = [nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.MaxPool2d]
    assert kinds == [*block, *block, nn.Flatten, nn.Linear, nn.ReLU, nn.Linear]


@pytest.mark.parametrize("name", MODELS)
def test_seed_decides_the_weights_and_nothing_else_changes(name: str) -> None:
    torch.manual_seed(11)
    first = flatten(build_model(name, (1, 16, 16), 10, 5))
    after_build = torch.rand(3)
    torch.manual_seed(11)
    assert torch.equal(after_build, torch.rand(3))
    np.testing.assert_array_equal(first, flatten(build_model(name, (1, 16, 16), 10, 5)))
    assert not np.array_equal(first, flatten(build_model(name, (1, 16, 16), 10, 6)))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "message"),
    [
        (
            "resnet",
            (1, 8, 8),
            10,
            "choose one of linear, mlp, small-mlp, simple-cnn, lenet5, small-vit, tiny-vit",
        ),
        ("simple-cnn", (64,), 10, "simple-cnn needs images"),
        ("simple-cnn", (3, 3, 32), 10, "simple-cnn needs images"),
        ("lenet5", (64,), 10, "lenet5 needs images"),
        ("lenet5", (3, 32, 11), 10, "lenet5 needs images"),
        ("small-vit", (64,), 10, "a vision transformer needs images"),
        ("small-vit", (3, 32, 30), 10, "multiples of 4"),
        ("tiny-vit", (1, 28, 28), 10, "multiples of 8"),
        ("mlp", (), 10, "positive sides"),
        ("mlp", (0, 8), 10, "positive sides"),
        ("mlp", (1, 8, 8), 1, "classes must be at least 2"),
    ],
)
def test_impossible_models_are_refused(name: str, shape: tuple[int, ...], classes: int, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        build_model(name, shape, classes, 0)


def test_defaults_follow_the_paper() -> None:
    names = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100")
    assert [default_model(name) for name in names] == ["mlp"] * 3 + ["simple-cnn"] * 2
