"""Opening a total gives the integer sum of the quantised updates, bit for bit, also at the very edge of a field."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shieldfl as sf
from encryption.enrolled_clients import KnownSession, total_of
from encryption.paillier_keys import authority_for
from encryption.test_scheme_conformance import client_of
from reference import ckks as reference

KEY = {"key_bits": 2048}
SHAPES = [
    (sf.ckks, {"max_clients": 1, "value_bits": 2, "fraction_bits": 0}),
    (sf.ckks, {"max_clients": 2, "value_bits": 40, "fraction_bits": 52}),
    (sf.ckks, {"max_clients": 7, "value_bits": 8, "fraction_bits": 3}),
    (sf.ckks, {"max_clients": 33, "value_bits": 16, "fraction_bits": 15, "ring_degree": 4096}),
    (sf.ckks, {"max_clients": 16, "value_bits": 3, "fraction_bits": 1, "ring_degree": 4096}),
    (sf.kahe, {"max_clients": 7, "value_bits": 40, "fraction_bits": 52}),
    (sf.kahe, {"max_clients": 33, "value_bits": 3, "fraction_bits": 1, "ring_degree": 2048}),
    (sf.pads, {"max_clients": 7, "value_bits": 40, "fraction_bits": 52}),
    (sf.pads, {"max_clients": 33, "value_bits": 3, "fraction_bits": 1}),
    (sf.paillier, KEY),
    (sf.paillier, KEY | {"packing": "single", "max_weight": 9}),
    (sf.paillier, KEY | {"max_clients": 6, "max_weight": 100, "value_bits": 12, "fraction_bits": 7}),
    (sf.paillier, KEY | {"max_clients": 7, "max_weight": 3, "value_bits": 40, "fraction_bits": 52}),
    (sf.paillier, KEY | {"max_clients": 5, "value_bits": 2, "fraction_bits": 0, "max_weight": 2}),
]
OF_PAILLIER = [number for number, (scheme, _) in enumerate(SHAPES) if scheme is sf.paillier]


def authority_of(scheme, parameters):
    if scheme is sf.paillier:
        return authority_for(parameters)
    if scheme is sf.ckks:
        return sf.KeyAuthority(parameters, min_clients=1, one_total_per_round=False)
    return KnownSession(parameters)


@pytest.fixture(scope="module")
def cases():
    """A scheme, its authority, its parameters and the steps of 1, for each shape."""
    made = [(scheme, authority_of(scheme, scheme.Parameters(**shape))) for scheme, shape in SHAPES]
    of = [(scheme, authority, authority.public_key.parameters) for scheme, authority in made]
    return [(*one, 2.0 ** one[2].fraction_bits) for one in of]


def top_of(parameters):
    return 2 ** (parameters.value_bits - 1) - 1


def integers_of(parameters, kind, rng, count):
    """Integers that are random, extreme, or at the border between the two."""
    top = top_of(parameters)
    if kind == "random":
        return rng.integers(-top, top + 1, count)
    if kind in ("highest", "lowest"):
        return np.full(count, top if kind == "highest" else -top)
    return rng.choice([-top, -top + 1, -1, 0, 1, top - 1, top], count)


drawn = {
    "clients": st.integers(1, 6),
    "kind": st.sampled_from(["random", "highest", "lowest", "border"]),
    "seed": st.integers(0, 2**32 - 1),
}


# 80 examples of up to 3,000 values and 6 clients: some 10^5 sums in each run.
@settings(max_examples=80)
@given(shape=st.integers(0, len(SHAPES) - 1), count=st.integers(1, 3000), **drawn)
def test_sums_are_integers_exactly_in_any_order_and_by_parts(cases, shape, count, clients, kind, seed):
    scheme, authority, parameters, scale = cases[shape]
    rng = np.random.default_rng(seed)
    count = min(count, 40) if scheme is sf.paillier else count
    integers = [
        integers_of(parameters, kind, rng, count) for _ in range(min(clients, parameters.max_clients))
    ]
    batches = [scheme.Encryptor(client_of(authority), 1).encrypt(each / scale, round=4) for each in integers]

    sum_of = partial(total_of, authority.public_key, threads=1)
    total = sum_of(batches)
    np.testing.assert_array_equal(authority.open(total) * scale, sum(integers))
    assert sum_of([batches[i] for i in rng.permutation(len(batches))]).to_bytes() == total.to_bytes()
    root = scheme.Aggregator(authority.public_key)
    ends = np.sort(rng.integers(0, len(batches) + 1, 2))
    for part in filter(None, (batches[: ends[0]], batches[ends[0] : ends[1]], batches[ends[1] :])):
        root.add_total(sum_of(part))
    assert (root.clients, root.round) == (len(batches), 4)
    assert root.total().to_bytes() == total.to_bytes()


@settings(max_examples=50)
@given(shape=st.sampled_from(OF_PAILLIER), count=st.integers(1, 40), **drawn)
def test_integer_weights_multiply_what_is_encrypted_and_what_is_in_the_clear(
    cases, shape, count, clients, kind, seed
):
    """Every value is either encrypted or in the clear; the sum is the same as if all were encrypted."""
    scheme, authority, parameters, scale = cases[shape]
    rng = np.random.default_rng(seed)
    encryptor = scheme.Encryptor(authority.public_key, threads=1)
    aggregator = scheme.Aggregator(authority.public_key, threads=1)
    expected, weights = 0, 0
    for _ in range(min(clients, parameters.max_clients)):
        integers, weight = (
            integers_of(parameters, kind, rng, count),
            int(rng.integers(1, parameters.max_weight + 1)),
        )
        hidden = rng.random(count) < rng.choice([0.5, 1.0])
        clear = None if hidden.all() else np.where(hidden, 0, integers) / scale
        batch = encryptor.encrypt(np.where(hidden, integers, 0) / scale)
        aggregator.add(batch, weight=weight, clear=clear)
        expected, weights = expected + weight * integers, weights + weight
    total = aggregator.total()
    np.testing.assert_array_equal(authority.open(total) * scale, expected)
    assert total.total_weight == weights
    np.testing.assert_allclose(authority.open_mean(total) * scale, expected / weights, rtol=1e-15)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shape", range(len(SHAPES)))
def test_guard_bits_hold_the_extreme_sum_of_all_clients(cases, shape, sign):
    """Every client sends the largest magnitude with the largest weight, and fields are full to the last bit."""
    scheme, authority, parameters, scale = cases[shape]
    top, count = sign * top_of(parameters), 2 * parameters.values_per_ciphertext
    most_weight = parameters._facts.get("max_weight", 1)
    aggregator = scheme.Aggregator(authority.public_key)
    for _ in range(parameters.max_clients):
        batch = scheme.Encryptor(client_of(authority)).encrypt(np.full(count, top / scale))
        aggregator.add(batch, **({"weight": most_weight} if most_weight > 1 else {}))
    expected = np.full(count, top * parameters.max_clients * most_weight)
    np.testing.assert_array_equal(authority.open(aggregator.total()) * scale, expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scheme", [sf.kahe, sf.pads, sf.ckks, sf.paillier])
def test_ties_round_to_even_as_in_the_reference(scheme, dtype):
    authority = authority_of(scheme, scheme.Parameters(value_bits=10, fraction_bits=2))
    update = (np.arange(-200, 200) / 8.0 + 1 / 8.0).astype(dtype)
    total = total_of(authority.public_key, [scheme.Encryptor(client_of(authority)).encrypt(update)])
    np.testing.assert_array_equal(authority.open(total) * 4, reference.quantise(update, 2))
