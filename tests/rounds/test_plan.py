"""Sizes and policies of a federation that cannot be are refused, whatever the method."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest

from methods.small_plan import small_plan
from shieldfl.errors import ParameterError

GOOD = small_plan(clients=3, samples=9)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("clients", 0),
        ("clients", -1),
        ("clients", 2.5),
        ("rounds", 0),
        ("rounds", 1.0),
        ("min_clients", 0),
        ("min_clients", 4),
        ("min_clients", None),
        ("server_learning_rate", 0.0),
        ("server_learning_rate", -1.0),
        ("server_learning_rate", math.nan),
        ("server_learning_rate", math.inf),
        ("parameters", 0),
        ("parameters", 2.5),
        ("buffers", -1),
        ("most_weight", 0),
        ("most_weight", 2**32),
        ("mean_weight", 0.5),
        ("mean_weight", 1.5),
        ("mean_weight", math.nan),
        ("samples", 0),
        ("samples", -5),
        ("samples", 9.5),
        ("clients", True),
        ("samples", True),
        ("layer_offsets", (0, GOOD.parameters - 1)),
        ("layer_offsets", (0, GOOD.parameters + 1)),
        ("layer_offsets", (1, GOOD.parameters)),
        ("layer_offsets", (0, 9, 5, GOOD.parameters)),
        ("layer_offsets", (0, 1.5, GOOD.parameters)),
        ("layer_offsets", "abc"),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_name(field, value):
    with pytest.raises(ParameterError, match=field):
        replace(GOOD, **{field: value})


@pytest.mark.parametrize(
    "weights", [(), (1, 2), (1, 2, 3, 4), (1, 0, 1), (1, -1, 1), (2.5, 1, 1), (1, 1, 2**32), (1, 1, 2**70)]
)
def test_weights_that_do_not_fit_are_refused(weights):
    with pytest.raises(ParameterError, match="weight"):
        small_plan(weights, clients=3)


def test_the_ends_of_the_ranges_are_taken():
    widest = small_plan((1, 2**32 - 1, 1), clients=3, min_clients=3, samples=1, rounds=1)
    assert (widest.most_weight, widest.mean_weight) == (2**32 - 1, (2**32 + 1) / 3)
    assert small_plan(clients=1, min_clients=1).most_weight == 1


def test_numbers_of_any_library_make_the_same_plan():
    plain = small_plan((1, 2, 3), clients=3, samples=9, layer_offsets=(0, 5, GOOD.parameters))
    other = small_plan(
        np.array([1, 2, 3]),
        clients=np.int64(3),
        samples=np.uint8(9),
        server_learning_rate=1,
        layer_offsets=np.array([0, 5, GOOD.parameters]),
    )
    assert json.dumps(asdict(other)) == json.dumps(asdict(plain))
