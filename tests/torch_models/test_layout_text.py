"""Texts of layouts: what is in them, and what is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

import shieldfl as sf
from shieldfl.torch import ModelLayout


def layout():
    shared = np.zeros((2, 3), np.float32)
    return ModelLayout.of({"a": shared, "b": shared, "c": np.zeros(4), "n": np.zeros(1, np.int64)})


CHANGES = {
    "name that is a number": lambda one: one["places"][0].update(name=3),
    "names as one text": lambda one: one["places"][1].update(aliases="xy"),
    "alias that is a number": lambda one: one["places"][1].update(aliases=[3]),
    "what is apart as one text": lambda one: one.update(apart="xy"),
    "what is apart by numbers": lambda one: one.update(apart=[1]),
    "what is apart as a dict": lambda one: one.update(apart={"n": 1}),
    "no such dtype": lambda one: one["places"][0].update(dtype="int32"),
    "dtype that is a list": lambda one: one["places"][0].update(dtype=["float32"]),
    "places as a dict": lambda one: one.update(places={"a": 1}),
    "shape as a text": lambda one: one["places"][0].update(shape="23"),
    "shape with a fraction": lambda one: one["places"][0].update(shape=[2.0]),
    "scale that is none": lambda one: one["places"][0].update(exponent=None),
    "version that is true": lambda one: one.update(version=True),
    "too many values": lambda one: one["places"][0].update(shape=[2**31, 1]),
    "too many together": lambda one: one["places"][0].update(shape=[2**31 - 3]),
    "sizes nobody can hold": lambda one: one["places"][0].update(shape=[2**62] * 1000),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_text_of_other_types_or_sizes_is_refused(what):
    one = json.loads(layout().to_json())
    CHANGES[what](one)
    with pytest.raises(sf.WireFormatError):
        ModelLayout.from_json(json.dumps(one))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 100_000,
        "[]",
        "3",
        "null",
        '"a"',
        "",
        "1" * 5000,
        "NaN",
        3,
        None,
        b"\xff\xfe\xfd",
    ],
)
def test_what_is_no_text_of_a_layout_is_refused(text):
    with pytest.raises(sf.WireFormatError):
        ModelLayout.from_json(text)


def test_the_most_positions_are_those_of_a_mask():
    one = json.loads(layout().to_json())
    one["places"][0].update(shape=[2**31 - 4])
    assert ModelLayout.from_json(json.dumps(one)).size == 2**31
    with pytest.raises(sf.ParameterError):
        sf.Mask.full(2**31 + 1)


def test_a_model_that_no_mask_can_be_of_is_not_laid_out():
    torch = pytest.importorskip("torch")
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
