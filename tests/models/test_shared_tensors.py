"""Arrays that are one in memory, under how many names and with which frozen; and those that share it otherwise."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import shieldfl as sf
from shieldfl.errors import ParameterError
from shieldfl.models import ModelLayout, ModelParts


def tied():
    """Return a layout of one tensor under the names a and b, and of another, c."""
    one = torch.arange(3.0)
    return ModelLayout.of({"a": one, "b": one, "c": torch.zeros(2)})


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.other, self.last = nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2)
        self.last.weight = self.first.weight


def test_tensors_without_memory_are_shared_where_their_storage_is():
    with torch.device("meta"):
        model = Tied()
    for one in (model, model.state_dict(), dict(model.named_parameters(remove_duplicate=False))):
        assert ModelLayout.of(one).places == ModelLayout.of(Tied()).places
    # Not of the same dtype, shape or place within it.
    vector = torch.empty(4, device="meta")
    apart = {
        "a": vector,
        "b": vector[:2],
        "c": vector[2:],
        "d": vector.view(torch.int32),
        "e": vector.view(2, 2),
    }
    assert [name for name, _ in ModelLayout.of(apart).slices()] == ["a", "b", "c", "e"]


def test_tensors_without_memory_are_laid_out_and_neither_read_nor_written():
    with torch.device("meta"):
        model = Tied()
    layout = ModelLayout.of(model)
    loaded = Tied()
    for use in (
        lambda: layout.flatten(model),
        lambda: layout.replaced(model, np.zeros(layout.size)),
        lambda: layout.load(model, loaded.state_dict()),
        lambda: layout.load(loaded, model.state_dict()),
    ):
        with pytest.raises(sf.ArrayTypeError, match=r"'first\.weight' is a tensor on the device meta"):
            use()
    layout.load(loaded, layout.replaced(loaded, np.ones(layout.size)))
    assert bool((loaded.last.weight == 1).all())


CHANGED = {
    "values": (torch.ones(3), sf.ParameterError),
    "shape": (torch.zeros(4), sf.ParameterError),
    "integers": (torch.arange(3), sf.ArrayTypeError),
}


@pytest.mark.parametrize("what", CHANGED)
def test_other_names_of_a_tensor_are_checked_as_it_is(what):
    other, error = CHANGED[what]
    layout = tied()
    model = {"a": torch.arange(3.0), "b": other, "c": torch.zeros(2)}
    for use in (
        lambda: layout.flatten(model),
        lambda: layout.replaced(model, np.zeros(5)),
        lambda: layout.load({name: torch.zeros_like(one) for name, one in model.items()}, model),
    ):
        with pytest.raises(error, match="'b'") as refused:
            use()
        assert what != "values" or "'a'" in str(refused.value)


def test_names_of_one_tensor_may_be_arrays_of_their_own_with_the_same_values():
    layout = tied()
    model = {"a": torch.tensor([0.0, np.nan, 2.0]), "c": torch.zeros(2)}
    model["b"] = model["a"].double()
    assert layout.flatten(model).tolist()[3:] == [0.0, 0.0]
    arrays = layout.replaced(model, np.full(5, 7.0))
    assert arrays["a"].dtype == torch.float32
    assert arrays["b"].dtype == torch.float64
    assert arrays["b"].tolist() == [7.0] * 3


@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
def test_loading_writes_under_every_name(make):
    layout = tied()
    target = {"a": make(3), "b": make(3) + 5, "c": make(2)}
    layout.load(target, {"a": np.ones(3), "c": np.ones(2)})
    assert all(bool((one == 1).all()) for one in target.values())


def test_loading_into_a_tensor_that_the_layout_has_twice_needs_one_value():
    layout = ModelLayout.of({"a": torch.zeros(2), "b": torch.zeros(2)})
    one = torch.zeros(2)
    with pytest.raises(sf.ParameterError, match="'a' and 'b' are one tensor"):
        layout.load({"a": one, "b": one}, {"a": torch.ones(2), "b": torch.full((2,), 2.0)})
    assert not one.any()
    layout.load({"a": one, "b": one}, {"a": torch.ones(2), "b": torch.ones(2)})
    assert one.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("integers_first", [True, False])
def test_integers_in_the_memory_of_floats_are_not_the_same_array(integers_first):
    floats = np.ones(3, np.float32)
    both = {"n": floats.view(np.int32), "w": floats}
    layout = ModelLayout.of(both if integers_first else dict(reversed(both.items())))
    assert [name for name, _ in layout.slices()] == ["w"]
    assert layout.apart == ("n",)


def test_a_negated_view_has_the_values_that_it_shows():
    model = {"a": torch.ones(3), "b": torch._neg_view(torch.ones(3))}
    assert ModelLayout.of(model).flatten(model).tolist() == [1.0] * 3 + [-1.0] * 3


@pytest.mark.parametrize("frozen_first", [True, False])
def test_a_tensor_is_trained_where_it_is_under_one_of_its_names(frozen_first):
    memory = torch.zeros(3)
    both = {
        "frozen": nn.Parameter(memory, requires_grad=False),
        "trained": nn.Parameter(memory),
        "other": nn.Parameter(torch.zeros(2), requires_grad=False),
    }
    layout = ModelLayout.of(both if frozen_first else dict(reversed(both.items())), trainable_only=True)
    assert layout.size == 3
    assert layout.apart == ("other",)


def test_trainable_only_needs_parameters_that_know_whether_they_are():
    model = Tied()
    model.other.requires_grad_(False)
    # One parameter does not say what else is frozen.
    mixed = model.state_dict() | {"first.bias": model.first.bias}
    for one in (model.state_dict(), {"a": np.zeros(3)}, mixed):
        with pytest.raises(sf.ParameterError, match=r"dict\(model\.named_parameters\(\)\)"):
            ModelLayout.of(one, trainable_only=True)
    expected = ModelLayout.of(model, trainable_only=True).size
    assert ModelLayout.of(dict(model.named_parameters()), trainable_only=True).size == expected == 4 + 2 + 2


BASE = np.arange(12.0, dtype=np.float32)


class TiedTranspose(torch.nn.Module):
    """A decoder whose weight is the encoder's, turned."""

    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Linear(3, 2, bias=False)
        self.decoder = torch.nn.Linear(2, 3, bias=False)
        self.decoder.weight = torch.nn.Parameter(self.encoder.weight.data.t())


def turned():
    matrix = BASE.reshape(3, 4)
    return {"a": matrix, "b": matrix.T}


SHARED = {
    "a transpose": turned,
    "a transpose in torch": lambda: {name: torch.from_numpy(one) for name, one in turned().items()},
    "a module with a tied transpose": TiedTranspose,
    "overlapping views": lambda: {"a": BASE[:8], "b": BASE[4:]},
    "views within one that ends later": lambda: {"a": BASE[::3], "b": BASE[1:8], "c": BASE[7:9]},
    "bfloat16": lambda: {"a": (one := torch.zeros(4, 4, dtype=torch.bfloat16)), "b": one[1:]},
    "negated": lambda: {"a": (one := torch.ones(4)), "b": torch._neg_view(one)},
}
APART = {
    "columns of one matrix": lambda: {"a": BASE.reshape(3, 4)[:, 0], "b": BASE.reshape(3, 4)[:, 1:]},
    "halves": lambda: {"a": BASE[:6], "b": BASE[6:]},
    "odd and even": lambda: {"a": torch.from_numpy(BASE)[::2], "b": torch.from_numpy(BASE)[1::2]},
    "the same one": lambda: {"a": BASE, "b": BASE},
    "empty ones": lambda: {"a": BASE[4:4], "b": BASE},
    "on meta": lambda: {"a": torch.zeros(4, device="meta"), "b": torch.zeros(4, device="meta")},
}


@pytest.mark.parametrize("case", SHARED)
def test_they_are_refused_by_both_names(case):
    with pytest.raises(ParameterError, match=r"'.*' and '.*' have values in common in memory"):
        ModelLayout.of(SHARED[case]())


@pytest.mark.parametrize("case", APART)
def test_arrays_without_a_value_in_common_are_not(case):
    assert ModelLayout.of(APART[case]()).size


def test_what_is_left_out_may_share():
    layout = ModelLayout.of(turned(), exclude="b")
    layout.load(turned(), turned())


def test_nothing_is_loaded_into_them():
    """The values of one were lost, and nothing said so."""
    source = {"a": np.ones((3, 4), np.float32), "b": np.zeros((4, 3), np.float32)}
    layout, target = ModelLayout.of(source), turned()
    before = target["a"].copy()
    with pytest.raises(ParameterError, match="have values in common"):
        layout.load(target, source)
    with pytest.raises(ParameterError, match="have values in common"):
        ModelParts(layout, 5).load(target, [], adds=False)
    np.testing.assert_array_equal(target["a"], before)
