"""Arrays that are one in memory: under how many names, with which of them frozen, and in models where they are not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import shieldfl as sf
from shieldfl.torch import ModelLayout


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


def test_zeros_that_were_one_array_once_are_not_taken_for_one_tensor():
    zeros = np.zeros(3)
    layout = ModelLayout.of({"a": zeros, "b": zeros})
    with pytest.raises(sf.ParameterError, match=r"'b' .* 'a'"):
        layout.flatten({"a": np.ones(3), "b": np.full(3, 2.0)})


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
    for one in (model.state_dict(), {"a": np.zeros(3)}):
        with pytest.raises(sf.ParameterError, match=r"dict\(model\.named_parameters\(\)\)"):
            ModelLayout.of(one, trainable_only=True)
    expected = ModelLayout.of(model, trainable_only=True).size
    assert ModelLayout.of(dict(model.named_parameters()), trainable_only=True).size == expected == 4 + 2 + 2
