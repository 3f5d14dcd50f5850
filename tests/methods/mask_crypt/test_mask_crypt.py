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
from shieldfl.authority.message import Message
from shieldfl.errors import RangeError, WireFormatError
from shieldfl.methods.mask_crypt import consensus, exposure_scores, propose, read_ranking
from shieldfl.methods.selective_shield.method import SelectiveShieldSettings


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


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("which", range(3))
def test_scores_refuse_what_is_not_finite(which: int, bad: float) -> None:
    inputs = [np.zeros(4, dtype=np.float32) for _ in range(3)]
    inputs[which][2] = bad
    with pytest.raises(RangeError, match="position 2"):
        exposure_scores(*inputs)


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


@given(rankings, st.none() | st.integers(0, 40))
def test_consensus_is_what_walking_through_the_lists_gives(
    case: tuple[int, list[list[int]]], limit: int | None
) -> None:
    size, proposals = case
    mask = consensus([ranking(*one) for one in proposals], size, limit)
    assert mask.size == size
    assert mask.to_indices().tolist() == sorted(twin_consensus(proposals, limit))


@pytest.mark.parametrize(
    ("positions", "message"),
    [
        ([1], "expected"),
        ([0, 1, 2], "expected"),
        ([0, 3], "out of range"),
        ([2**32 - 1, 0], "out of range"),
        ([1, 1], "twice"),
    ],
)
def test_a_bad_ranking_on_the_wire_is_refused(positions: list[int], message: str) -> None:
    part = np.array(positions, dtype="<u4").tobytes()
    with pytest.raises(WireFormatError, match=message):
        read_ranking(Message({"ranking": part}), 2, 3)


def ranked_by(run: SteppedRun, slope_of) -> None:
    """Every client's ranking in this round is the one by these slopes."""
    for index, client in enumerate(run.clients):
        ranking = run.sent["ranking"][index].vector("ranking", np.uint32, PARAMETERS // 10)
        scores = (run.exposed[index] - client.update.parameters) * slope_of(index, client)
        np.testing.assert_array_equal(ranking, twin_ranking(scores, ranking.size))


def run_of(gradient: str) -> SteppedRun:
    plain = Variant("mask-crypt", SelectiveShieldSettings(), "mask-crypt")
    return SteppedRun(plain.with_others(key_bits=2048, gradient=gradient))


@pytest.mark.parametrize("gradient", ["update", "full-batch"])
def test_rankings_are_by_what_training_has_moved_or_by_the_gradient_that_it_brings(gradient):
    run = run_of(gradient)
    moved = gradient == "update"
    assert run.method.scores == (None if moved else "gradient")
    for _ in range(2):
        run.exposed = [client._exposed.copy() for client in run.clients]
        run.run_round()
        ranked_by(
            run,
            lambda index, client: (
                client.start.parameters - client.update.parameters if moved else client.trained_scores
            ),
        )
