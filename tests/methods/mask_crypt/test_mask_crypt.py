"""MaskCrypt's scores, ranked proposals and their consensus, against a twin that walks through the lists; slopes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from methods.method_conformance import SteppedRun
from methods.variants import PARAMETERS, Variant
from shieldfl.errors import RangeError, WireFormatError
from shieldfl.methods.mask_crypt import consensus, decode_ranking, exposure_scores, propose
from shieldfl.methods.selective_shield.settings import SelectiveShieldSettings


def twin_ranking(scores: Sequence[float], count: int) -> list[int]:
    return sorted(range(len(scores)), key=lambda position: (-scores[position], position))[:count]


def twin_consensus(proposals: Sequence[Sequence[int]], limit: int | None) -> list[int]:
    """Positions in the order in which they entered the consensus."""
    kept: list[int] = []
    for choices in zip_longest(*proposals):
        for position in choices:
            if position is not None and position not in kept and (limit is None or len(kept) < limit):
                kept.append(position)
    return kept


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


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", range(3))
def test_scores_refuse_what_is_not_finite(which: int, bad: float) -> None:
    inputs = [np.zeros(4, dtype=np.float32) for _ in range(3)]
    inputs[which][2] = bad
    with pytest.raises(RangeError, match="position 2"):
        exposure_scores(*inputs)


def test_scores_refuse_overflow() -> None:
    with pytest.raises(RangeError, match="position 1"):
        exposure_scores(vector(0, 1e30), vector(0, 0), vector(0, 1e30))


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


@given(rankings, st.none() | st.integers(0, 40))
def test_consensus_is_what_walking_through_the_lists_gives(
    case: tuple[int, list[list[int]]], limit: int | None
) -> None:
    size, proposals = case
    mask = consensus([ranking(*one) for one in proposals], size, limit)
    assert mask.size == size
    assert mask.to_indices().tolist() == sorted(twin_consensus(proposals, limit))


@given(rankings)
def test_a_ranking_survives_the_wire(case: tuple[int, list[list[int]]]) -> None:
    size, proposals = case
    for proposal in proposals:
        decoded = decode_ranking(ranking(*proposal).astype("<u4").tobytes(), size)
        assert decoded.dtype == np.int64
        assert decoded.tolist() == proposal


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0\0\0", "truncated"),
        (b"\x03\0\0\0", "out of range"),
        (b"\xff\xff\xff\xff", "out of range"),
        (b"\x01\0\0\0\x01\0\0\0", "twice"),
        (bytes(16), "longer"),
    ],
)
def test_a_bad_ranking_on_the_wire_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(WireFormatError, match=message):
        decode_ranking(data, 3)


def ranked_by(run: SteppedRun, slope_of) -> None:
    """Every client's ranking in this round is the one by these slopes."""
    for index, client in enumerate(run.clients):
        ranking = decode_ranking(run.sent["ranking"][index]["ranking"], PARAMETERS)
        scores = (run.exposed[index] - client.update.parameters) * slope_of(index, client)
        np.testing.assert_array_equal(ranking, twin_ranking(scores, ranking.size))


def run_of(gradient: str) -> SteppedRun:
    plain = Variant("mask-crypt", SelectiveShieldSettings(), "mask-crypt")
    return SteppedRun(plain.with_others(key_bits=2048, gradient=gradient))


def test_update_ranks_by_what_training_has_moved_and_asks_training_for_nothing():
    run = run_of("update")
    assert run.method.scores is None
    for _ in range(2):
        run.exposed = [client._exposed.copy() for client in run.clients]
        run.run_round()
        ranked_by(run, lambda index, client: client.start.parameters - client.update.parameters)


def test_full_batch_ranks_by_the_gradient_that_training_brings():
    run = run_of("full-batch")
    assert run.method.scores == "gradient"
    run.exposed = [client._exposed.copy() for client in run.clients]
    run.run_round()
    ranked_by(run, lambda index, client: client.trained_scores)
