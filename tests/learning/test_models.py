"""The models must be the papers', by their parameter counts and by what they compute."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.learning import MODELS
from shieldfl.learning.networks import build_model, default_model
from shieldfl.models.torch_bridge import flatten, flatten_buffers

# Of colour images of 32 x 32 pixels in ten classes: lenet5's are Alt-FL's.
SIZES = {"linear": 30_730, "mlp": 820_874, "small-mlp": 98_666, "simple-cnn": 1_070_986, "lenet5": 83_126}
SIZES |= {"small-vit": 1_205_642, "tiny-vit": 214_090}


def test_models_have_their_known_sizes() -> None:
    assert {name: flatten(build_model(name, (3, 32, 32), 10, 0)).size for name in MODELS} == SIZES
    assert flatten(build_model("mlp", (1, 28, 28), 10, 0)).size == 235_146  # SelectiveShield's
    # The smallest and odd images among them.
    shapes = {"simple-cnn": (2, 16, 24), "small-vit": (2, 16, 24), "lenet5": (1, 12, 12)}
    for name, shape in (*shapes.items(), ("lenet5", (3, 13, 31))):
        assert build_model(name, shape, 7, 0).eval()(torch.zeros(1, *shape)).shape == (1, 7)


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
