"""The models are the papers'; scores by the layers' own algebra are those of each sample's gradient."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

from shieldfl.errors import ParameterError
from shieldfl.learning import MODELS
from shieldfl.learning.networks import build_model, default_model
from shieldfl.learning.scores import evaluation_mode, label_sensitivity, layer_chain, summed_scores
from shieldfl.models.sample_gradients import gradients_of_samples
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


CHAINS = {
    "strides, dilation, no bias, in place": (
        (2, 9, 9),
        [
            nn.Conv2d(2, 4, 3, stride=2, padding=(1, 0), bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.Conv2d(4, 3, 2, dilation=2),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.LeakyReLU(inplace=True),
            nn.Linear(3, 3),
        ],
    ),
    "nested, dropout, batch norm of vectors": (
        (6,),
        [
            nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8, affine=True), nn.Dropout(0.5)),
            nn.Sequential(nn.Sequential(nn.GELU(), nn.BatchNorm1d(8, affine=False)), nn.Linear(8, 3)),
        ],
    ),
    "linear layers over tokens, batch norm of sequences": (
        (4, 5),
        [nn.Linear(5, 6), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(6, 2), nn.Flatten(), nn.Linear(8, 3)],
    ),
    "channels last": (
        (3, 8, 8),
        [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3)],
    ),
}


def chain_of(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    torch.manual_seed(5)
    shape, layers = CHAINS[name]
    model = nn.Sequential(*deepcopy(layers))
    model(torch.randn(16, *shape) * 2 + 1)
    if name == "channels last":
        model.to(memory_format=torch.channels_last)
    return model, torch.randn(7, *shape), torch.randint(0, 3, (7,))


@pytest.mark.parametrize("score", [torch.abs, torch.square])
@pytest.mark.parametrize("name", CHAINS)
def test_a_chains_scores_are_those_of_each_samples_gradient(name, score) -> None:
    model, features, labels = chain_of(name)
    model[0].requires_grad_(name != "channels last")  # a frozen layer is left out
    chain, before = layer_chain(model), features.clone()
    with evaluation_mode(model):
        gradients, _, _ = gradients_of_samples(model)(features, labels)
        found = summed_scores(chain, features, labels, score)
    assert found.keys() == gradients.keys()
    assert torch.equal(features, before)
    for parameter, each in gradients.items():
        expected = score(each).sum(dim=0)
        assert found[parameter].shape == expected.shape
        torch.testing.assert_close(found[parameter], expected, rtol=1e-4, atol=1e-7)


def test_nothing_is_scored_where_all_is_frozen() -> None:
    model, features, labels = chain_of("channels last")
    chain = layer_chain(model.requires_grad_(False))
    assert summed_scores(chain, features, labels, torch.abs) == {}


class Centred(nn.Linear):
    """Mixes the samples that come together."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return super().forward(values - values.mean(dim=0))


class Residual(nn.Sequential):
    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + super().forward(values)


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    return model


def twice() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.ReLU(), layer)


def hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_forward_hook(lambda layer, came, went: 2 * went)
    return model


def hooked_as_a_whole() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4))
    model.register_forward_hook(lambda layer, came, went: 2 * went)
    return model


def patched() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].forward = lambda values: 2 * values
    return model


def with_parameter() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model[1].register_parameter("weight", nn.Parameter(torch.ones(4)))
    return model


def bias_alone() -> nn.Module:
    model = nn.Sequential(nn.BatchNorm1d(4))
    model[0].weight = None
    return model


def one_for_both() -> nn.Module:
    model = nn.Sequential(nn.BatchNorm1d(4))
    model[0].bias = model[0].weight
    return model


OTHERS = {
    "a parameter where none is": with_parameter,
    "a bias alone": bias_alone,
    "one parameter for both": one_for_both,
    "another way forward": patched,
    "another kind of model": lambda: nn.Linear(4, 4),
    "a subclass of a layer": lambda: nn.Sequential(Centred(4, 4)),
    "a subclass of the chain": lambda: Residual(nn.Linear(4, 4)),
    "within the chain": lambda: nn.Sequential(Residual(nn.Linear(4, 4)), nn.Linear(4, 4)),
    "a layer twice": twice,
    "a tied parameter": tied,
    "a hook": hooked,
    "a hook on the whole": hooked_as_a_whole,
    "groups": lambda: nn.Sequential(nn.Conv2d(4, 4, 3, groups=2)),
    "padding by name": lambda: nn.Sequential(nn.Conv2d(4, 4, 3, padding="same")),
    "padding that is not zero": lambda: nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")),
    "the batch's statistics": lambda: nn.Sequential(nn.BatchNorm2d(4, track_running_stats=False)),
    "flattened samples": lambda: nn.Sequential(nn.Flatten(0)),
    "weights made of others": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))),
    "a layer of no known kind": lambda: nn.Sequential(nn.LayerNorm(4)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_are_taken_for_no_chain(name) -> None:
    assert layer_chain(OTHERS[name]()) is None


def test_what_a_chain_cannot_take_is_named_and_gradients_are_made_whoever_asks() -> None:
    model, features, labels = chain_of("channels last")
    with pytest.raises(ParameterError, match="cannot be differentiated"):
        label_sensitivity(model, features[:, :2], labels)
    with pytest.raises(ParameterError, match="a label is"):
        label_sensitivity(model, features, labels + 3)
    expected = label_sensitivity(model, features, labels)
    with torch.no_grad():
        assert (label_sensitivity(model, features, labels) == expected).all()
