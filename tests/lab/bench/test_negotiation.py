"""Negotiation beside reading the masks: the same masks for both, and the fastest reader counts."""

from __future__ import annotations

import numpy as np
import pytest

import mask_targets
from mask_targets import CLIENTS, negotiation_over_reading, voters
from shieldfl.masks import Mask
from target import at_least, at_most, median_seconds_in_turns


@pytest.mark.parametrize("positions", [1, 64, 65, 5000])
def test_what_is_read_are_the_masks_that_are_negotiated(monkeypatch, positions):
    seen = {}

    def in_turns(functions, repetitions, before):
        seen["result"] = functions["negotiate"]()
        seen["read"] = {name: function() for name, function in functions.items() if name != "negotiate"}
        seen["elsewhere"] = before.__self__
        return {"negotiate": 3.0, "sum": 2.0, "XOR": 1.0, "maximum": 4.0}

    monkeypatch.setattr(mask_targets, "median_seconds_in_turns", in_turns)
    line = negotiation_over_reading(positions, 1)
    chosen = voters(positions)
    np.testing.assert_array_equal(seen["result"].to_bool(), chosen.sum(axis=0) >= 4)
    # The bitmap is the end of a dense mask's frame; here it is made anew from its bits.
    for row, total in zip(chosen, seen["read"]["sum"], strict=True):
        bitmap = sum(1 << int(position) for position in Mask.from_bool(row).to_indices())
        words = [bitmap >> shift & (2**64 - 1) for shift in range(0, positions, 64)]
        assert int(total) == sum(words) % 2**64
    assert seen["elsewhere"].nbytes >= 8 * CLIENTS * positions // 8
    assert (line.measured, line.target, line.verdict) == (3.0, 1.25, "missed")


def test_what_comes_before_is_not_timed_and_each_has_its_turn():
    calls = []
    now = iter(range(1000))

    def call(name):
        calls.append(name)
        next(now)

    seconds = median_seconds_in_turns(
        {name: lambda name=name: call(name) for name in "ab"}, 3, before=lambda: call("-")
    )
    assert calls == ["a", "b", *["-", "a", "-", "b"] * 3]
    assert set(seconds) == {"a", "b"}


def test_a_verdict_compares_with_what_is_asked():
    assert [at_most("x", value, 2.0, 1.0).verdict for value in (3.0, 2.0, 1.0, None)] == [
        "missed", "met", "stretch", "not measured",
    ]  # fmt: skip
    assert [at_least("x", value, 2.0, 3.0).verdict for value in (1.0, 2.0, 3.0)] == [
        "missed",
        "met",
        "stretch",
    ]
    assert at_most("x", 0.5, 2.0).verdict == "met"
    assert at_most("x", 0.5, None).verdict == ""
