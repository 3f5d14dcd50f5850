"""MaskCrypt's scores, ranked proposals and their consensus, against a twin that walks through the lists."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.mask_crypt.mask_crypt_twin import twin_consensus, twin_ranking
from shieldfl.errors import ArrayTypeError, ParameterError, RangeError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.methods.mask_crypt.method import (
    consensus,
    decode_ranking,
    encode_ranking,
    exposure_scores,
    propose,
)


def vector(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


def ranking(*positions: int) -> np.ndarray:
    return np.array(positions, dtype=np.int64)


rankings = st.integers(1, 30).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.lists(
            st.permutations(range(size)).flatmap(lambda p: st.integers(0, size).map(lambda k: p[:k])),
            min_size=1,
            max_size=6,
        ),
    )
)


def test_scores_are_signed() -> None:
    scores = exposure_scores(vector(1, 1, 0, 2), vector(3, 0, 0, 2), vector(0.5, 0.5, 9, 9))
    assert scores.dtype == np.float32
    np.testing.assert_array_equal(scores, vector(-1, 0.5, 0, 0))


def test_scores_leave_their_input_alone() -> None:
    inputs = vector(1, 2), vector(3, 5), vector(7, 11)
    copies = [one.copy() for one in inputs]
    exposure_scores(*inputs)
    for one, copy in zip(inputs, copies, strict=True):
        np.testing.assert_array_equal(one, copy)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", range(3))
def test_scores_refuse_what_is_not_finite(which: int, bad: float) -> None:
    inputs = [np.zeros(4, dtype=np.float32) for _ in range(3)]
    inputs[which][2] = bad
    with pytest.raises(RangeError, match="position 2"):
        exposure_scores(*inputs)


def test_scores_refuse_overflow_other_sizes_and_other_types() -> None:
    with pytest.raises(RangeError, match="position 1"):
        exposure_scores(vector(0, 1e30), vector(0, 0), vector(0, 1e30))
    with pytest.raises(ParameterError, match="3, 2 and 3"):
        exposure_scores(vector(1, 2, 3), vector(1, 2), vector(1, 2, 3))
    with pytest.raises(ArrayTypeError, match="gradient"):
        exposure_scores(vector(1), vector(1), np.ones(1))


@given(
    scores=st.lists(
        st.one_of(st.sampled_from([-1.0, -0.0, 0.0, 1.0]), st.floats(-9, 9, width=32)), min_size=1
    ),
    ratio=st.floats(0, 1, exclude_min=True),
)
def test_a_proposal_is_the_head_of_the_sorted_positions(scores: list[float], ratio: float) -> None:
    proposed = propose(vector(*scores), ratio)
    assert proposed.dtype == np.int64
    assert proposed.size / len(scores) <= ratio
    assert (proposed.size + 1) / len(scores) > ratio
    assert proposed.tolist() == twin_ranking(scores, proposed.size)


def test_the_number_of_positions_is_the_share_as_written() -> None:
    for percent in range(1, 101):
        assert propose(np.zeros(100, dtype=np.float32), percent / 100).size == percent
    assert propose(vector(1, 2, 3), 0.3).size == 0


@pytest.mark.parametrize("ratio", [0.0, -0.1, 1.0000001, math.nan, math.inf])
def test_a_ratio_outside_of_its_range_is_refused(ratio: float) -> None:
    with pytest.raises(ParameterError, match="ratio"):
        propose(vector(1, 2), ratio)


def test_proposals_refuse_bad_scores() -> None:
    with pytest.raises(RangeError, match="position 1"):
        propose(vector(1, math.nan), 0.5)
    with pytest.raises(ArrayTypeError):
        propose(np.ones(3), 0.5)


@given(rankings, st.none() | st.integers(0, 40))
def test_consensus_is_what_walking_through_the_lists_gives(
    case: tuple[int, list[list[int]]], limit: int | None
) -> None:
    size, proposals = case
    mask = consensus([ranking(*one) for one in proposals], size, limit)
    assert mask.size == size
    assert mask.to_indices().tolist() == sorted(twin_consensus(proposals, limit))


def test_the_cut_takes_every_clients_first_choice_before_any_second() -> None:
    proposals = [ranking(4, 3, 2), ranking(0, 4, 1), ranking(4, 0, 5)]
    assert consensus(proposals, 8, 2).to_indices().tolist() == [0, 4]
    assert consensus(proposals, 8, 3).to_indices().tolist() == [0, 3, 4]
    assert consensus(proposals, 8, 4).to_indices().tolist() == [0, 2, 3, 4]
    assert consensus(proposals, 8, None).to_indices().tolist() == [0, 1, 2, 3, 4, 5]


def test_consensus_of_nothing_is_empty() -> None:
    assert consensus([ranking(), ranking()], 5, None) == Mask.empty(5)
    assert consensus([ranking(1)], 5, 0) == Mask.empty(5)


@pytest.mark.parametrize("bad", [ranking(0, 7), ranking(-1), ranking(2, 0, 2)])
def test_consensus_refuses_positions_out_of_range_or_twice(bad: np.ndarray) -> None:
    with pytest.raises(ParameterError):
        consensus([ranking(0, 1), bad], 7, 3)


def test_consensus_refuses_no_proposals_and_other_types() -> None:
    with pytest.raises(ParameterError, match="no client"):
        consensus([], 7, 3)
    with pytest.raises(ArrayTypeError):
        consensus([np.array([1, 2], dtype=np.int32)], 7, 3)
    with pytest.raises(ParameterError, match="limit"):
        consensus([ranking(1)], 7, -1)


@given(rankings)
def test_a_ranking_survives_the_wire(case: tuple[int, list[list[int]]]) -> None:
    size, proposals = case
    for proposal in proposals:
        data = encode_ranking(ranking(*proposal))
        assert len(data) == 4 * len(proposal)
        decoded = decode_ranking(data, size)
        assert decoded.dtype == np.int64
        assert decoded.tolist() == proposal


def test_the_wire_form_is_little_endian() -> None:
    assert encode_ranking(ranking(1, 2**24)) == b"\x01\0\0\0\0\0\0\x01"


@pytest.mark.parametrize("bad", [-1, 2**32])
def test_a_position_that_does_not_fit_is_not_encoded(bad: int) -> None:
    with pytest.raises(ParameterError, match="between 0"):
        encode_ranking(ranking(3, bad))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0\0\0", "truncated"),
        (b"\x03\0\0\0", "out of range"),
        (b"\xff\xff\xff\xff", "out of range"),
        (b"\x01\0\0\0\x01\0\0\0", "twice"),
        (bytes(16), "longer"),
        ("ranking", "bytes"),
    ],
)
def test_a_bad_ranking_on_the_wire_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(WireFormatError, match=message):
        decode_ranking(data, 3)
