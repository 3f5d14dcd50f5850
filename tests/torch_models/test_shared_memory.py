"""Arrays that share memory otherwise than as one: what is written to one would change the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from shieldfl.errors import ParameterError
from shieldfl.torch import ModelLayout, ModelParts

BASE = np.arange(12.0, dtype=np.float32)


class Tied(torch.nn.Module):
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
    "a module with a tied transpose": Tied,
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


@pytest.mark.parametrize(
    "given",
    [
        {"ranges": {"a": "8"}},
        {"ranges": {"a": None}},
        {"ranges": ["a"]},
        {"limit": None},
        {"limit": 10**400},
        {"limit": "8"},
        {"include": 3},
        {"include": [3]},
        {"exclude": [b"a"]},
    ],
)
def test_arguments_of_other_types_are_refused_in_words(given):
    with pytest.raises(ParameterError):
        ModelLayout.of({"a": BASE}, **given)


def test_a_dict_in_itself_is_refused():
    model = {"a": BASE}
    model["b"] = model
    with pytest.raises(ParameterError, match="without end"):
        ModelLayout.of(model)


def test_one_parameter_does_not_say_what_else_is_frozen():
    linear = torch.nn.Linear(2, 2)
    mixed = {**linear.state_dict(), "head": torch.nn.Parameter(torch.zeros(2))}
    with pytest.raises(ParameterError, match="nothing says whether 'weight' is frozen"):
        ModelLayout.of(mixed, trainable_only=True)
