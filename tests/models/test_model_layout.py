"""Models of every kind that people hold, through encryption and back."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch
from torch import nn

import shieldfl as sf
from encryption.paillier_keys import authority_for
from shieldfl.masks import LayerCount
from shieldfl.models import BATCH_NORM_STATISTICS, ModelLayout

STEP = 2.0**-20
SCHEMES = ("kahe", "pads", "ckks", "paillier")


def summed(layout, models, mask=None, scheme="kahe", **options):
    """Return the sums, or the weighted mean, of models that clients have encrypted under a scheme."""
    module = getattr(sf, scheme)
    if scheme in ("kahe", "pads"):
        authority = sf.KeyAuthority(module.Parameters(max_clients=4), min_clients=2)
        keys = [authority.enrol(f"client-{number}") for number in range(len(models))]
        encryptors = [module.Encryptor(key) for key in keys]
    else:
        authority = (
            sf.KeyAuthority(sf.ckks.Parameters(max_clients=4), min_clients=2)
            if scheme == "ckks"
            else authority_for(sf.paillier.Parameters(key_bits=2048, max_clients=4))
        )
        encryptors = [module.Encryptor(authority.public_key)] * len(models)
    aggregator = module.Aggregator(authority.public_key, round=3)
    for encryptor, model in zip(encryptors, models, strict=True):
        frame = layout.encrypt(encryptor, model, mask, round=3, **options)
        assert frame.round == 3
        assert frame.is_of(mask or sf.Mask.full(layout.size))
        assert frame.weighted == ("weight" in options)
        aggregator.add(frame.to_bytes())
    total = aggregator.total()
    return authority.open_mean(total) if "weight" in options else authority.open(total)


class Net(nn.Module):
    """Has all that makes models awkward: tied tensors, frozen ones, BatchNorm, a scalar."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 11, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.frozen = nn.Linear(4, 3)
        self.frozen.requires_grad_(False)


def test_a_module_is_encrypted_summed_and_loaded_by_its_names():
    torch.manual_seed(1)
    models = [Net() for _ in range(3)]
    layout = ModelLayout.of(models[0])
    mean = summed(layout, models) / 3
    before = {name: value.clone() for name, value in models[0].state_dict().items()}
    arrays = layout.replaced(models[0], mean)
    models[0].load_state_dict(arrays)
    expected = {
        name: torch.stack([before[name], *(model.state_dict()[name] for model in models[1:])]).mean(0)
        for name, value in before.items()
        if value.is_floating_point()
    }
    for name, value in models[0].state_dict().items():
        if name == "norm.num_batches_tracked":
            assert value == before[name]
        else:
            torch.testing.assert_close(value, expected[name], atol=2 * STEP, rtol=1e-6)
    assert models[0].head.weight is models[0].embedding.weight


@pytest.mark.parametrize("name", ["embedding.weight", "head.weight"])
def test_a_shared_tensor_is_chosen_under_all_of_its_names(name):
    """Else one name would bring the old values, and the other the new ones, into the same memory."""
    model = Net()
    assert {"head.weight", "embedding.weight"} <= set(ModelLayout.of(model, exclude=name).apart)
    layout = ModelLayout.of(model, include=name)
    arrays = layout.replaced(model, np.ones(layout.size))
    assert arrays["head.weight"] is arrays["embedding.weight"]
    model.load_state_dict(arrays)
    assert bool((model.head.weight == 1).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_every_width_of_floats_comes_back_as_it_went_in(dtype):
    tree = {"a": torch.linspace(-1, 1, 6, dtype=dtype).reshape(2, 3), "b": torch.ones((), dtype=dtype)}
    layout = ModelLayout.of(tree)
    arrays = layout.replaced(tree, summed(layout, [tree, tree]) / 2)
    for name, one in tree.items():
        assert arrays[name].dtype == dtype
        assert arrays[name].shape == one.shape
        torch.testing.assert_close(arrays[name], one, atol=STEP, rtol=0.01)
    assert layout.flatten(tree).dtype == (np.float64 if dtype == torch.float64 else np.float32)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_nested_dicts_of_numpy_arrays_are_models(dtype):
    tree = {"encoder": {"w": np.ones((2, 2), dtype), "steps": np.array(3)}, "b": np.zeros(3, dtype)[::2]}
    layout = ModelLayout.of(tree)
    assert [name for name, _ in layout.slices()] == ["encoder.w", "b"]
    arrays = layout.moved(tree, np.full(6, 0.5))
    assert set(arrays) == {"encoder.w", "encoder.steps", "b"}
    assert arrays["encoder.w"].dtype == dtype
    assert arrays["encoder.w"].tolist() == [[1.5, 1.5], [1.5, 1.5]]
    assert arrays["b"].tolist() == [0.5, 0.5]
    # The order is the layout's, whichever a dict has.
    turned = {"b": tree["b"], "encoder": {"steps": tree["encoder"]["steps"], "w": tree["encoder"]["w"]}}
    assert np.array_equal(layout.flatten(turned), layout.flatten(tree))
    layout.load(tree, arrays)
    assert tree["b"].tolist() == [0.5, 0.5]


def test_an_update_since_a_model_is_what_is_encrypted():
    before = {"w": torch.zeros(4)}
    trained = [{"w": torch.full((4,), 0.25)}, {"w": torch.full((4,), 0.75)}]
    layout = ModelLayout.of(before)
    start = {"w": torch.full((4,), 10.0)}  # outside of what the encryption takes
    moved = [{"w": one["w"] + 10.0} for one in trained]
    sums = summed(layout, moved, since=start)
    assert sums.tolist() == [1.0] * 4
    assert layout.moved(start, sums / 2)["w"].tolist() == [10.5] * 4


def test_statistics_beyond_the_range_are_scaled_and_come_back():
    model = Net()
    model.norm.running_var += 1000.0
    with pytest.raises(sf.RangeError, match=r"the tensor 'norm.running_var'"):
        summed(ModelLayout.of(model), [model, model])
    layout = ModelLayout.of(model, ranges=dict.fromkeys(BATCH_NORM_STATISTICS, 4096.0))
    arrays = layout.replaced(model, summed(layout, [model, model]) / 2)
    # The step grows with the range, by 1024, and half of it is what rounding moves; parameters keep theirs.
    torch.testing.assert_close(arrays["norm.running_var"], model.norm.running_var, atol=512 * STEP, rtol=1e-6)
    torch.testing.assert_close(arrays["scale"], model.scale.detach(), atol=STEP, rtol=0)


def test_masks_by_name_mix_with_masks_by_position():
    model = Net()
    layout = ModelLayout.of(model)
    by_name = layout.mask("norm.weight", re.compile(r"frozen\.(weight|bias)"))
    assert by_name.count == 4 + 15
    assert layout.mask("head.*") == layout.mask("embedding.weight")  # the same tensor
    first = sf.Mask.from_indices([0], layout.size)
    both = by_name | first
    assert both.describe(layout) == both.describe(layout.parameters)
    assert both.describe(layout)[:2] == [LayerCount("scale", 1, 1), LayerCount("embedding.weight", 0, 44)]
    chosen = [one for one in both.describe(layout) if one.chosen]
    assert [one.name for one in chosen] == ["scale", "norm.weight", "frozen.weight", "frozen.bias"]
    sums = summed(layout, [model, model], both)
    assert sums.shape == (both.count,)
    other = Net()
    arrays = layout.replaced(other, sums / 2, both)
    assert torch.equal(arrays["embedding.weight"], other.embedding.weight)
    torch.testing.assert_close(arrays["frozen.bias"], model.frozen.bias.detach(), atol=STEP, rtol=0)
    moved = layout.moved(other, sums / 2, both)
    torch.testing.assert_close(
        moved["frozen.bias"], (other.frozen.bias + model.frozen.bias).detach(), atol=2 * STEP, rtol=0
    )


def test_include_and_exclude_choose_what_is_encrypted():
    model = Net()
    layout = ModelLayout.of(model, include=["norm.*", "scale"], exclude=re.compile(r".*running.*"))
    assert [name for name, _ in layout.slices()] == ["scale", "norm.weight", "norm.bias"]
    assert "norm.running_mean" in layout.apart
    assert (
        layout.flatten(
            {"scale": model.scale, "norm": {"weight": model.norm.weight, "bias": model.norm.bias}}
        ).size
        == 9
    )


def test_a_layout_travels_as_text():
    layout = ModelLayout.of(Net(), ranges={"norm.running_var": 100.0})
    read = ModelLayout.from_json(layout.to_json())
    assert read == layout
    assert read.digest == layout.digest
    assert ModelLayout.of(Net()).digest != layout.digest


REFUSED = {
    "missing": (lambda one: one.pop("b"), sf.ParameterError, "'b' is missing"),
    "unknown": (lambda one: one.update(c=torch.ones(1)), sf.ParameterError, "'c' is not in the layout"),
    "shape": (lambda one: one.update(b=torch.ones(4)), sf.ParameterError, r"'b' has the shape \(4,\)"),
    "integers": (
        lambda one: one.update(b=torch.ones(3, dtype=torch.int64)),
        sf.ArrayTypeError,
        "'b' is of int64",
    ),
    "complex": (
        lambda one: one.update(b=torch.ones(3, dtype=torch.complex64)),
        sf.ArrayTypeError,
        "'b' is of complex64",
    ),
    "list": (lambda one: one.update(b=[1.0, 2.0, 3.0]), sf.ArrayTypeError, "'b' is a list"),
    "number": (lambda one: one.update({3: torch.ones(1)}), sf.ParameterError, "3 is not"),
    "twice": (
        lambda one: one.update({"a": {"b": torch.ones(1)}, "a.b": torch.ones(1)}),
        sf.ParameterError,
        "'a.b'",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_model_of_the_layout_is_refused_by_name(what):
    change, error, match = REFUSED[what]
    model = {"a": torch.zeros(2), "b": torch.zeros(3)}
    layout = ModelLayout.of(model)
    change(model)
    with pytest.raises(error, match=match):
        layout.flatten(model)
    with pytest.raises(error, match=match):
        layout.load({"a": torch.zeros(2), "b": torch.zeros(3)}, model)


def test_what_cannot_be_laid_out_is_refused():
    model = {"a": torch.zeros(2), "n": torch.zeros(2, dtype=torch.int32)}
    for options, words in (
        ({"exclude": "a"}, "no floats that are to be encrypted"),
        ({"include": "x*"}, r"no array of the model matches 'x\*': its names are like a, n"),
        ({"ranges": {"a": float("nan")}}, "range of 'a'"),
        ({"ranges": {"a": 1e308}, "limit": 1e-300}, "range of 'a' is too large"),
        ({"limit": 0.0}, "limit"),
    ):
        with pytest.raises(sf.ParameterError, match=words):
            ModelLayout.of(model, **options)
    with pytest.raises(sf.ParameterError, match="at least one name"):
        ModelLayout.of(model).mask()
    with pytest.raises(sf.ArrayTypeError, match=r"model\.state_dict"):
        ModelLayout.of(torch.zeros(3))
    endless: dict = {}
    endless["a"] = endless
    with pytest.raises(sf.ParameterError, match="without end"):
        ModelLayout.of(endless)
    with pytest.raises(sf.ArrayTypeError, match="'a' is of float8"):
        ModelLayout.of({"a": torch.zeros(2).to(torch.float8_e4m3fn)})


def test_other_numbers_of_values_are_refused():
    model = {"a": torch.zeros(4)}
    layout = ModelLayout.of(model)
    for values in (np.zeros(3), np.zeros((4, 1)), np.zeros(4, np.int64), [0.0] * 4):
        with pytest.raises(sf.ParameterError, match="expected 4 decrypted floats"):
            layout.replaced(model, values)
    with pytest.raises(sf.ParameterError, match="mask is one of 5"):
        layout.moved(model, np.zeros(4), sf.Mask.full(5))
    with pytest.raises(sf.ParameterError, match="mask is one of 5"):
        sf.Mask.full(5).describe(layout)


def layout():
    shared = np.zeros((2, 3), np.float32)
    return ModelLayout.of({"a": shared, "b": shared, "c": np.zeros(4), "n": np.zeros(1, np.int64)})


CHANGES = {
    "name that is a number": lambda one: one["places"][0].update(name=3),
    "what is apart as a dict": lambda one: one.update(apart={"n": 1}),
    "shape with a fraction": lambda one: one["places"][0].update(shape=[2.0]),
    "too many together": lambda one: one["places"][0].update(shape=[2**31 - 3]),
    "nothing encrypted": lambda one: one.pop("places"),
    "later version": lambda one: one.update(version=2),
    "shape below 0": lambda one: one["places"][0].update(shape=[-1]),
    "scale beyond all": lambda one: one["places"][0].update(exponent=10**6),
    "one name twice": lambda one: one["places"][1].update(name=one["places"][0]["name"]),
    "apart and not": lambda one: one.update(apart=["a"]),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_text_of_other_types_or_sizes_is_refused(what):
    one = json.loads(layout().to_json())
    CHANGES[what](one)
    with pytest.raises(sf.WireFormatError):
        ModelLayout.from_json(json.dumps(one))


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "[]", "null", "", "NaN", "no JSON", 3, None, b"\xff\xfe\xfd"],
)
def test_what_is_no_text_of_a_layout_is_refused(text):
    with pytest.raises(sf.WireFormatError):
        ModelLayout.from_json(text)


def test_a_model_that_no_mask_can_be_of_is_not_laid_out():
    model = {name: torch.empty(2**30, device="meta") for name in ("a", "b", "c")}
    assert ModelLayout.of(model, exclude="c").size == 2**31
    with pytest.raises(sf.ParameterError, match="include"):
        ModelLayout.of(model)


def test_digests_tell_layouts_apart_by_all_that_they_have():
    def digest(model, **options):
        return ModelLayout.of(model, **options).digest

    model = {"a": np.zeros(4, np.float32), "b": np.zeros(4, np.float32), "n": np.zeros(1, np.int64)}
    others = [
        {**model, "a": np.zeros((2, 2), np.float32)},
        {**model, "a": np.zeros(4, np.float16)},
        {**model, "b": model["a"]},
        {"x": model["a"], "b": model["b"], "n": model["n"]},
        {"b": model["b"], "a": model["a"], "n": model["n"]},
        {"a": model["a"], "b": model["b"]},
    ]
    digests = {digest(one) for one in others} | {
        digest(model),
        digest(model, ranges={"a": 100.0}),
        digest(model, exclude="b"),
    }
    assert len(digests) == len(others) + 3
    assert digest({name: one + 1 for name, one in model.items()}) == digest(model)
    assert digest(model, ranges={"a": 100.0}) == digest(model, ranges={"a": 101.0})


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_models_are_summed_under_every_scheme(scheme, masked):
    torch.manual_seed(1)
    models = [{"w": torch.randn(3, 5), "b": torch.randn(5, dtype=torch.float64)} for _ in range(3)]
    layout = ModelLayout.of(models[0], ranges={"b": 100.0})
    mask = layout.mask("b") | sf.Mask.from_indices([2, 7], layout.size) if masked else None
    arrays = layout.replaced(models[0], summed(layout, models, mask, scheme), mask)
    w = sum(one["w"] for one in models)
    if masked:
        chosen = torch.zeros(15, dtype=torch.bool)
        chosen[[2, 7]] = True
        w = torch.where(chosen.reshape(3, 5), w, models[0]["w"])
    torch.testing.assert_close(arrays["w"], w, atol=3 * STEP, rtol=1e-6)
    torch.testing.assert_close(arrays["b"], sum(one["b"] for one in models), atol=3 * 16 * STEP, rtol=0)


def test_tensors_that_serve_as_they_are_are_not_copied():
    seen = []

    class Recorder:
        def encrypt(self, pieces, mask, **options):
            seen.extend(pieces)

    state = {
        "w": torch.randn(3, 5),
        "t": torch.randn(4, 3).T,
        "h": torch.randn(6).half(),
        "e": torch.zeros(0),
    }
    layout = ModelLayout.of(state)
    layout.encrypt(Recorder(), state)
    assert [piece.size for piece in seen] == [15, 12, 6]
    memory = [piece.__array_interface__["data"][0] for piece in seen]
    assert memory[0] == state["w"].data_ptr()
    assert memory[1] != state["t"].data_ptr()
    np.testing.assert_array_equal(np.concatenate(seen), layout.flatten(state))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_options_of_encryptors_are_handed_on(scheme):
    before = {"w": torch.full((4,), 100.0)}
    models = [{"w": torch.full((4,), 101.0)}, {"w": torch.full((4,), 150.0)}]
    layout = ModelLayout.of(before)
    with pytest.raises(sf.RangeError, match=r"the tensor 'w'"):
        summed(layout, models, scheme=scheme, since=before)
    mean = summed(layout, models, scheme=scheme, since=before, weight=0.5, clip=True)
    # The second one's update, 50, is clipped to 8 times 2 for its weight.
    assert layout.moved(before, mean)["w"].tolist() == pytest.approx([108.5] * 4, abs=1e-4)


@pytest.mark.parametrize("largest", [8.0 - STEP, 8.0, np.nextafter(64.0, 0.0), 64.0, 65_536.0, 1e6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_up_to_the_range_that_is_named_are_encrypted(largest, dtype):
    largest = float(dtype(largest))
    model = {"w": np.array([largest, -largest], dtype)}
    layout = ModelLayout.of(model, ranges={"w": largest})
    encryptor = sf.ckks.Encryptor(sf.KeyAuthority(sf.ckks.Parameters()).public_key)
    assert layout.encrypt(encryptor, model).clipped == 0
    # And no more is scaled than has to be.
    (place,) = layout.places
    if place.exponent:
        doubled = {"w": model["w"] * 2}
        with pytest.raises(sf.RangeError, match="'w'"):
            layout.encrypt(encryptor, doubled)


def test_the_limit_is_that_of_the_parameters():
    params = sf.ckks.Parameters(value_bits=30, fraction_bits=20)
    model = {"w": np.array([params.value_limit]), "x": np.array([2 * params.value_limit])}
    layout = ModelLayout.of(
        model, ranges={name: float(one[0]) for name, one in model.items()}, limit=params.value_limit
    )
    assert [place.exponent for place in layout.places] == [0, 1]
    layout.encrypt(sf.ckks.Encryptor(sf.KeyAuthority(params).public_key), model)
    default = sf.ckks.Parameters().value_limit
    assert ModelLayout.of(model, ranges={"w": default}).places[0].exponent == 0
    assert ModelLayout.of(model, ranges={"w": np.nextafter(default, 9)}).places[0].exponent == 1
