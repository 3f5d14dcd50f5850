"""Masks against sets, negotiation against its NumPy definition, zones against their invariant."""

from __future__ import annotations

import math
import pickle
import resource
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shieldfl as sf
from reference import ckks as reference
from shieldfl.masks import negotiate_zones, split_zones

SIZES = [1, 63, 64, 65, 127, 1000, 4099]
shapes = st.tuples(st.integers(1, 300), st.floats(0, 1), st.integers(0, 2**32 - 1))


def chosen_of(shape):
    size, share, seed = shape
    return np.random.default_rng(seed).random(size) < share


@given(shapes)
def test_round_trips(shape):
    chosen = chosen_of(shape)
    mask = sf.Mask.from_bool(chosen)
    indices = np.flatnonzero(chosen)
    assert (mask.size, mask.count) == (len(chosen), len(indices))
    np.testing.assert_array_equal(mask.to_bool(), chosen)
    np.testing.assert_array_equal(mask.to_indices(), indices)
    assert sf.Mask.from_indices(indices[::-1].copy(), len(chosen)) == mask
    assert sf.Mask.from_bytes(mask.to_bytes()) == mask
    assert pickle.loads(pickle.dumps(mask)) == mask


@given(shapes, st.integers(0, 2**32 - 1))
def test_algebra(shape, seed):
    a = chosen_of(shape)
    b = np.random.default_rng(seed).random(len(a)) < 0.5
    left, right = sf.Mask.from_bool(a), sf.Mask.from_bool(b)
    np.testing.assert_array_equal((left & right).to_bool(), a & b)
    np.testing.assert_array_equal((left | right).to_bool(), a | b)
    np.testing.assert_array_equal((left - right).to_bool(), a & ~b)
    np.testing.assert_array_equal((~left).to_bool(), ~a)
    assert (left == right) == bool((a == b).all())


@given(shapes, st.integers(0, 300), st.booleans())
def test_resized_is_a_slice_or_a_padding(shape, size, chosen):
    own = chosen_of(shape)
    expected = np.concatenate((own, np.full(max(size - len(own), 0), chosen)))[:size]
    resized = sf.Mask.from_bool(own).resized(size, chosen=chosen)
    np.testing.assert_array_equal(resized.to_bool(), expected)
    same = resized.resized(size)
    assert same is resized  # with what the core has worked out of it
    assert resized.count == int(expected.sum())


def votes_of(masks):
    votes = sf.Votes(masks[0].size)
    for mask in masks:
        votes.add(mask)
    return votes


@settings(max_examples=150)
@given(
    size=st.sampled_from([*SIZES, 0]),
    voters=st.integers(1, 40),
    consensus=st.one_of(st.floats(0.001, 1.0), st.sampled_from([0.07, 0.28, 0.5, 0.55, 0.56, 0.7, 1.0])),
    seed=st.integers(0, 2**32 - 1),
)
def test_negotiated_zones_are_those_of_each_client(size, voters, consensus, seed):
    rng = np.random.default_rng(seed)
    choices = rng.random((voters, size)) < rng.random()
    masks = [sf.Mask.from_bool(choice) for choice in choices]
    encrypted, clients = negotiate_zones(masks, consensus)
    expected = reference.negotiate(choices, consensus)
    np.testing.assert_array_equal(encrypted.to_bool(), expected)
    assert encrypted == sf.negotiate(masks, consensus)
    assert len(clients) == voters
    votes = votes_of(masks)
    assert votes.voters == voters
    assert votes.consensus(consensus) == encrypted
    np.testing.assert_array_equal(votes.counts(), choices.sum(axis=0))
    for mask, choice, zones in zip(masks, choices, clients, strict=True):
        assert zones == split_zones(mask, encrypted)
        assert (zones.personalised.count, zones.noise.count) == (
            int((choice & ~expected).sum()),
            int((~choice & ~expected).sum()),
        )
        np.testing.assert_array_equal(zones.noise.to_bool(), ~choice & ~expected)


@pytest.mark.parametrize("threads", [1, 2, 3, None])
def test_negotiated_zones_do_not_depend_on_threads(threads):
    rng = np.random.default_rng(3)
    masks = [sf.Mask.from_bool(rng.random(2_500_003) < share) for share in (0.1, 0.4, 0.6, 0.9)]
    encrypted, clients = negotiate_zones(masks, 0.5, threads=threads)
    assert encrypted == sf.negotiate(masks, 0.5, threads=threads) == votes_of(masks).consensus(0.5)
    assert clients == [split_zones(mask, encrypted) for mask in masks]


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_thousand_voters_take_memory_for_the_counters_alone():
    size, voters = 25_000_000, 1000
    mask = sf.Mask.full(size)
    before = resident_bytes()
    votes = sf.Votes(size)
    for _ in range(voters):
        votes.add(mask)
    # One bit a position for every binary digit of the number of voters.
    assert resident_bytes() - before < 1.1 * voters.bit_length() * -(-size // 64) * 8
    assert votes.consensus(1.0) == mask


@given(shapes)
def test_gather_and_scatter(shape):
    chosen = chosen_of(shape)
    mask = sf.Mask.from_bool(chosen)
    for dtype in (np.float32, np.float64):
        dense = np.arange(len(chosen), dtype=dtype)
        np.testing.assert_array_equal(mask.gather(dense), dense[chosen])
        target = np.zeros(len(chosen), dtype=dtype)
        mask.scatter(dense[chosen], target)
        mask.scatter_add(dense[chosen], target)
        np.testing.assert_array_equal(target, np.where(chosen, 2 * dense, 0))


@pytest.mark.parametrize("share", [0.01, 0.1, 0.9])
def test_random_masks_travel_near_their_entropy(share):
    size = 10**6
    mask = sf.Mask.from_bool(np.random.default_rng(1).random(size) < share)
    p = mask.count / size
    entropy_bytes = -size * (p * math.log2(p) + (1 - p) * math.log2(1 - p)) / 8
    assert len(mask.to_bytes()) <= 1.15 * entropy_bytes


def test_different_sizes_are_refused():
    left, right = sf.Mask.full(10), sf.Mask.full(11)
    for operation in (left.__and__, left.__or__, left.__sub__):
        with pytest.raises(sf.ParameterError, match=r"10.*11"):
            operation(right)
    assert left != right
    for together in (sf.negotiate, negotiate_zones):
        with pytest.raises(sf.ParameterError):
            together([left, right])
    votes = sf.Votes(10)
    votes.add(left)
    with pytest.raises(sf.ParameterError):
        votes.add(right)
    assert votes.voters == 1
    with pytest.raises(TypeError):
        left & {1, 2}


def test_what_cannot_be_negotiated():
    for together in (sf.negotiate, negotiate_zones):
        for consensus in (0.0, -0.1, 1.01, float("nan"), float("inf")):
            with pytest.raises(sf.ParameterError):
                together([sf.Mask.full(3)], consensus)
        with pytest.raises(sf.ParameterError, match="at least one"):
            together([])
    with pytest.raises(sf.ParameterError):
        sf.Votes(3).consensus(0.5)


def test_frame_of_another_size_is_refused_before_it_takes_memory():
    frame = sf.Mask.empty(2**31).to_bytes()
    assert len(frame) < 100
    with pytest.raises(sf.WireFormatError):
        sf.Mask.from_bytes(frame, expected_size=1000)
    with pytest.raises(sf.WireFormatError, match="at most 1000"):
        sf.Mask.from_bytes(frame, most_positions=1000)
    for size in (0, 999, 1000):
        assert sf.Mask.from_bytes(sf.Mask.full(size).to_bytes(), most_positions=1000).size == size


@pytest.mark.parametrize(
    ("make", "error"),
    [
        *(
            (lambda one=one: sf.Mask.from_indices(one, 3), sf.ParameterError)
            for one in ([0, 0], [3], [-1], [2**40])
        ),
        *(
            (lambda one=one: sf.Mask.from_bool(one), sf.ArrayTypeError)
            for one in ([True], np.ones(3), np.ones((2, 2), bool), np.ones(4, bool)[::2])
        ),
        *((lambda one=one: sf.Mask.full(one), sf.ParameterError) for one in (-1, 2**31 + 1, 2**70, 1.5)),
        (lambda: sf.Mask.full(3).resized(-1), sf.ParameterError),
        (lambda: sf.Mask.full(3).gather(np.zeros(4)), sf.ParameterError),
        (lambda: sf.Mask.full(3).scatter(np.zeros(2), np.zeros(3)), sf.ParameterError),
        (lambda: sf.Mask.full(3).scatter(np.zeros(3, np.float32), np.zeros(3)), sf.ArrayTypeError),
        (lambda: sf.Mask.full(3).scatter(np.ones(3), np.broadcast_to(0.0, 3)), ValueError),
    ],
)
def test_what_cannot_be_is_refused(make, error):
    with pytest.raises(error):
        make()


def test_things_that_are_no_masks():
    votes = sf.Votes(3)
    for attempt in (
        lambda: sf.negotiate([np.ones(3, dtype=bool)]),
        lambda: sf.negotiate([sf.Mask.full(3), None]),
        lambda: negotiate_zones([sf.Mask.full(3), np.ones(3, dtype=bool)]),
        lambda: votes.add(np.ones(3, dtype=bool)),
        lambda: split_zones(sf.Mask.full(3), {1}),
    ):
        with pytest.raises(sf.ArrayTypeError, match="from_bool"):
            attempt()
    for frame in ("x", None, 5):
        with pytest.raises(sf.WireFormatError):
            sf.Mask.from_bytes(frame)
    for size in (-1, 10.0):
        with pytest.raises(sf.ParameterError):
            sf.Mask.from_bytes(sf.Mask.full(3).to_bytes(), expected_size=size)
    with pytest.raises(sf.ParameterError):
        sf.negotiate([sf.Mask.full(3)], "half")
