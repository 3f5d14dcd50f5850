"""What adding under encryption has to obey, from random examples; and sums at the very edge of a field."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shieldfl as sf
from encryption.paillier_keys import authority_for
from encryption.quantised_integers import integers_of, top_of

SHAPES = [
    {},
    {"packing": "single", "max_weight": 9},
    {"max_clients": 6, "max_weight": 100, "value_bits": 12, "fraction_bits": 7},
    {"max_clients": 7, "max_weight": 3, "value_bits": 40, "fraction_bits": 52},
    {"max_clients": 5, "value_bits": 2, "fraction_bits": 0, "max_weight": 2},
]


@pytest.fixture(scope="module")
def authorities():
    return [authority_for(sf.paillier.Parameters(key_bits=2048, **shape)) for shape in SHAPES]


examples = given(
    shape=st.integers(0, len(SHAPES) - 1),
    clients=st.integers(1, 5),
    count=st.integers(1, 40),
    kind=st.sampled_from(["random", "highest", "lowest", "border"]),
    seed=st.integers(0, 2**32 - 1),
)


class Round:
    """Some clients' integers, the batches of them, and what the authority makes of a sum."""

    def __init__(self, authority, clients, count, kind, seed):
        self.authority = authority
        self.parameters = authority.public_key.parameters
        self.rng = np.random.default_rng(seed)
        self.scale = 2.0**self.parameters.fraction_bits
        clients = min(clients, self.parameters.max_clients)
        self.integers = [integers_of(self.parameters, kind, self.rng, count) for _ in range(clients)]
        encryptor = sf.paillier.Encryptor(authority.public_key, threads=1)
        self.batches = [encryptor.encrypt(integers / self.scale) for integers in self.integers]

    def total(self, order, weights=None, clear=None):
        aggregator = sf.paillier.Aggregator(self.authority.public_key, threads=1)
        for i in order:
            aggregator.add(
                self.batches[i],
                weight=1 if weights is None else weights[i],
                clear=None if clear is None else clear[i] / self.scale,
            )
        return aggregator.total()

    def open(self, total):
        return self.authority.open(total) * self.scale


@settings(max_examples=40)
@examples
def test_sums_are_integers_exactly_in_any_order(authorities, shape, clients, count, kind, seed):
    case = Round(authorities[shape], clients, count, kind, seed)
    order = case.rng.permutation(len(case.batches))
    total, other = case.total(order), case.total(sorted(order))
    np.testing.assert_array_equal(case.open(total), sum(case.integers))
    # The products are the same number, and the frame ids are in ascending order.
    assert total.to_bytes() == other.to_bytes()


@settings(max_examples=25)
@examples
def test_integer_weights_multiply(authorities, shape, clients, count, kind, seed):
    case = Round(authorities[shape], clients, count, kind, seed)
    weights = [int(w) for w in case.rng.integers(1, case.parameters.max_weight + 1, len(case.batches))]
    total = case.total(range(len(case.batches)), weights)
    expected = sum(w * x for w, x in zip(weights, case.integers, strict=True))
    np.testing.assert_array_equal(case.open(total), expected)
    assert total.total_weight == sum(weights)
    np.testing.assert_allclose(
        case.authority.open_mean(total) * case.scale, expected / sum(weights), rtol=1e-15
    )


@settings(max_examples=25)
@examples
def test_plaintexts_are_added_where_nothing_was_encrypted(authorities, shape, clients, count, kind, seed):
    """Every value is either encrypted or in the clear; the sum is the same as if all were encrypted."""
    case = Round(authorities[shape], clients, count, kind, seed)
    encryptor = sf.paillier.Encryptor(case.authority.public_key, threads=1)
    hidden = [case.rng.random(count) < 0.5 for _ in case.batches]
    weights = [int(w) for w in case.rng.integers(1, case.parameters.max_weight + 1, len(case.batches))]
    case.batches = [
        encryptor.encrypt(np.where(h, x, 0) / case.scale) for h, x in zip(hidden, case.integers, strict=True)
    ]
    clear = [np.where(h, 0, x) for h, x in zip(hidden, case.integers, strict=True)]
    total = case.total(range(len(case.batches)), weights, clear)
    np.testing.assert_array_equal(
        case.open(total), sum(w * x for w, x in zip(weights, case.integers, strict=True))
    )


@settings(max_examples=20)
@examples
def test_totals_of_parts_add_up_to_the_total_of_all(authorities, shape, clients, count, kind, seed):
    case = Round(authorities[shape], clients, count, kind, seed)
    cut = int(case.rng.integers(0, len(case.batches) + 1))
    whole = case.total(range(len(case.batches)))
    root = sf.paillier.Aggregator(case.authority.public_key)
    for part in (range(cut), range(cut, len(case.batches))):
        if len(part) > 0:
            root.add_total(case.total(part))
    assert root.total().to_bytes() == whole.to_bytes()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shape", [0, 1, 2, 3, 4])
def test_guard_bits_hold_the_extreme_sum_of_all_clients(authorities, shape, sign):
    """Every client sends the largest magnitude with the largest weight, and fields are full to the last bit."""
    authority = authorities[shape]
    parameters = authority.public_key.parameters
    top = sign * top_of(parameters)
    scale = 2.0**parameters.fraction_bits
    count = 2 * parameters.values_per_ciphertext
    encryptor = sf.paillier.Encryptor(authority.public_key)
    aggregator = sf.paillier.Aggregator(authority.public_key)
    for _ in range(parameters.max_clients):
        aggregator.add(encryptor.encrypt(np.full(count, top / scale)), weight=parameters.max_weight)
    total = aggregator.total()
    expected = top * parameters.max_clients * parameters.max_weight
    np.testing.assert_array_equal(authority.open(total) * scale, np.full(count, expected))


@pytest.mark.parametrize("pattern", list(itertools.product([1, -1], repeat=3)), ids=str)
def test_neighbours_of_extreme_fields_stay_what_they_are(pattern):
    """With a power of two for clients and weights the guard bits are exactly full; signs borrow from neighbours."""
    authority = authority_for(
        sf.paillier.Parameters(key_bits=2048, max_clients=4, max_weight=4, value_bits=6, fraction_bits=0)
    )
    fields = authority.public_key.parameters.values_per_ciphertext
    integers = np.resize(31 * np.array(pattern), fields + 3)
    integers[5] = integers[-1] = 0
    encryptor = sf.paillier.Encryptor(authority.public_key)
    aggregator = sf.paillier.Aggregator(authority.public_key)
    for _ in range(4):
        aggregator.add(encryptor.encrypt(integers.astype(np.float64)), weight=4)
    np.testing.assert_array_equal(authority.open(aggregator.total()), 16 * integers)
