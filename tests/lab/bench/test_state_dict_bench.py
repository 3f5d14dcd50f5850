"""The benchmark of state dicts measures what it says, in small."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest

from documentation_pages import ROOT


@pytest.fixture(scope="module")
def bench():
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("state_dict", ROOT / "bench" / "state_dict.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["state_dict"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["state_dict"]


def test_each_scheme_has_a_row_of_times_and_ratios(bench):
    found = list(bench.rows(width=8, repetitions=2))
    assert [row[0] for row in found] == list(bench.SCHEMES)
    assert {row[1] for row in found} == {f"{bench.concatenated(bench.model_of(8).state_dict()).size:,}"}
    for *_, flat, made in found:
        assert float(flat) > 0 < float(made)


def test_what_is_encrypted_is_the_same_in_all_ways(bench):
    state = bench.model_of(8).state_dict()
    layout = bench.ModelLayout.of(state)
    np.testing.assert_array_equal(layout.flatten(state), bench.concatenated(state))
