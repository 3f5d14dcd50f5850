"""How many positions a share of them is."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import shieldfl as sf
from shieldfl.selection import positions_in_budget


@given(budget=st.floats(0.0, 1.0), size=st.integers(0, 2**31))
def test_a_budget_holds_as_many_positions_as_fit(budget, size):
    count = positions_in_budget(budget, size)
    assert 0 <= count <= size
    assert count == 0 or count / size <= budget
    assert count == size or (count + 1) / size > budget


def test_a_budget_counts_as_it_is_written():
    assert [positions_in_budget(percent / 100, 100) for percent in range(101)] == list(range(101))


@pytest.mark.parametrize(
    ("budget", "size"), [(-0.1, 9), (1.1, 9), (math.nan, 9), ("half", 9), (0.0, -1), (0.5, -1), (0.5, 1.5)]
)
def test_a_budget_out_of_range_is_refused(budget, size):
    with pytest.raises(sf.ParameterError):
        positions_in_budget(budget, size)
