"""Opening a total equals the integer sum of the quantised updates, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shieldfl as sf
from encryption.quantised_integers import integers_of
from reference import ckks as reference

SHAPES = [
    {"max_clients": 1, "value_bits": 2, "fraction_bits": 0},
    {"max_clients": 2, "value_bits": 40, "fraction_bits": 52},
    {"max_clients": 7, "value_bits": 8, "fraction_bits": 3},
    {"max_clients": 64, "value_bits": 24, "fraction_bits": 20},
    {"max_clients": 33, "value_bits": 16, "fraction_bits": 15, "ring_degree": 4096},
    {"max_clients": 16, "value_bits": 3, "fraction_bits": 1, "ring_degree": 4096},
]


@pytest.fixture(scope="module")
def authorities():
    parameters = [sf.ckks.Parameters(**shape) for shape in SHAPES]
    return [sf.KeyAuthority(p, min_clients=1, one_total_per_round=False) for p in parameters]


# 60 examples of up to 3,000 values and 6 clients: some 10^5 sums in each run.
@settings(max_examples=60)
@given(
    shape=st.integers(0, len(SHAPES) - 1),
    clients=st.integers(1, 6),
    count=st.integers(1, 3000),
    kind=st.sampled_from(["random", "highest", "lowest", "border"]),
    seed=st.integers(0, 2**32 - 1),
)
def test_sums_are_integers_exactly(authorities, shape, clients, count, kind, seed):
    authority = authorities[shape]
    parameters = authority.public_key.parameters
    rng = np.random.default_rng(seed)
    encryptor = sf.ckks.Encryptor(authority.public_key)
    aggregator = sf.ckks.Aggregator(authority.public_key)
    expected = np.zeros(count, dtype=np.int64)
    for _ in range(min(clients, parameters.max_clients)):
        integers = integers_of(parameters, kind, rng, count)
        expected += integers
        aggregator.add(encryptor.encrypt(integers / 2.0**parameters.fraction_bits))
    opened = authority.open(aggregator.total())
    np.testing.assert_array_equal(opened * 2.0**parameters.fraction_bits, expected)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_guard_bits_hold_the_extreme_sum_of_all_clients(authorities, shape, sign):
    authority = authorities[shape]
    parameters = authority.public_key.parameters
    top = 2 ** (parameters.value_bits - 1) - 1
    count = 2 * parameters._facts["values_per_ciphertext"]
    update = np.full(count, sign * top / 2.0**parameters.fraction_bits)
    encryptor = sf.ckks.Encryptor(authority.public_key)
    aggregator = sf.ckks.Aggregator(authority.public_key)
    for _ in range(parameters.max_clients):
        aggregator.add(encryptor.encrypt(update))
    opened = authority.open(aggregator.total())
    np.testing.assert_array_equal(
        opened * 2.0**parameters.fraction_bits, np.full(count, sign * top * parameters.max_clients)
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ties_round_to_even_as_in_the_reference(dtype):
    parameters = sf.ckks.Parameters(value_bits=10, fraction_bits=2)
    authority = sf.KeyAuthority(parameters, min_clients=1)
    update = (np.arange(-200, 200) / 8.0 + 1 / 8.0).astype(dtype)
    aggregator = sf.ckks.Aggregator(authority.public_key)
    aggregator.add(sf.ckks.Encryptor(authority.public_key).encrypt(update))
    expected = reference.quantise(update, parameters.fraction_bits)
    np.testing.assert_array_equal(authority.open(aggregator.total()) * 4, expected)
