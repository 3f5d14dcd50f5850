"""Selection against every subset and its slow twin; mutual information against NumPy."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shieldfl as sf
from reference import selection as reference_selection
from shieldfl.masks import (
    SelectionLimits,
    mutual_information,
    positions_in_budget,
    select,
    sense_crypt_budgets,
    top_k,
)

UNBOUNDED = math.inf
DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def limits_of(rng, **fixed):
    """Draw limits that contradict each other now and then."""
    drawn = {
        "budget": float(rng.choice([0.05, 0.3, 0.6, 0.95, 1.0])),
        "exposed_share": float(rng.choice([0.05, 0.5, 0.7, 1.0])),
        "exposure_decay": float(rng.choice([0.1, 1.3, 2.0])),
        "information_bits": float(rng.uniform(0.0, 3.0)),
        "bins": int(rng.choice([2, 5, 16, 256])),
        "cost_weight": float(rng.choice([0.3, 1.0, 2.5])),
        "gain_weight": float(rng.choice([0.5, 1.0, 3.0])),
    }
    return SelectionLimits(**(drawn | fixed))


def scores_of(kind, size, rng, dtype):
    if kind == "spread":
        scores = np.abs(rng.normal(size=size))
    elif kind == "ties":
        scores = rng.integers(0, 4, size) * 0.1
    elif kind == "mostly zero":
        scores = np.where(rng.random(size) < 0.2, rng.random(size), 0.0)
    elif kind == "equal":
        scores = np.full(size, 0.1)
    elif kind == "neighbours":  # a last bit apart
        scores = 1.0 + np.finfo(dtype).eps * rng.integers(0, 5, size)
    elif kind == "all magnitudes":
        span = np.finfo(dtype)
        scores = np.ldexp(rng.random(size), rng.integers(span.minexp - 20, span.maxexp, size))
    else:
        scores = np.zeros(size)
    return scores.astype(dtype)


KINDS = ["spread", "ties", "mostly zero", "equal", "neighbours", "all magnitudes", "zero"]


def twin(scores, weights, limits):
    return reference_selection.select(
        [float(score) for score in scores],
        [float(weight) for weight in weights],
        budget=limits.budget,
        exposed_share=limits.exposed_share,
        exposure_decay=limits.exposure_decay,
        information_limit_bits=limits.information_bits,
        bins=limits.bins,
        cost_weight=limits.cost_weight,
        gain_weight=limits.gain_weight,
    )


@DTYPES
@pytest.mark.parametrize("kind", KINDS)
def test_selection_is_the_twin_s(kind, dtype):
    rng = np.random.default_rng(KINDS.index(kind))
    for size in [1, 2, 7, 64, 65, 150]:
        for _ in range(4):
            scores = scores_of(kind, size, rng, dtype)
            weights = rng.normal(0.1, 1.0, size).astype(dtype)
            limits = limits_of(rng)
            expected = twin(scores, weights, limits)
            found = select(scores, weights, limits, threads=1)
            assert found.mask.to_indices().tolist() == expected.positions
            counts = (
                found.best_count,
                found.security_count,
                found.information_count,
                found.budget_count,
            )
            assert counts == expected[1:5]
            assert found.share == pytest.approx(expected.share, rel=1e-14)
            assert found.information_bits == pytest.approx(expected.information_bits, abs=1e-12)


def subsets(size):
    return itertools.chain.from_iterable(itertools.combinations(range(size), k) for k in range(size + 1))


@pytest.mark.parametrize("seed", range(12))
def test_no_subset_within_budget_and_security_is_better(seed):
    """All 2^P subsets. With the mutual information too: none of those that take the highest scores."""
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 13))
    scores = scores_of(KINDS[seed % 4], size, rng, np.float64)
    weights = rng.normal(size=size)
    bounded = limits_of(rng, budget=float(rng.choice([0.5, 0.8, 1.0])), exposed_share=0.7)
    order = reference_selection.ranking(scores.tolist())

    def cost(positions):
        return reference_selection.objective(
            scores.tolist(), positions, bounded.cost_weight, bounded.gain_weight
        )

    def is_allowed(positions, found):
        enough = math.fsum(scores[list(positions)]) >= found.required_share * math.fsum(scores)
        return len(positions) <= found.budget_count and enough

    found = select(scores, weights, dataclasses.replace(bounded, information_bits=UNBOUNDED))
    allowed = [cost(positions) for positions in subsets(size) if is_allowed(positions, found)]
    if found.meets_security:
        assert cost(found.mask.to_indices().tolist()) == min(allowed)
    else:
        assert not allowed

    found = select(scores, weights, bounded)
    heads = [order[:k] for k in range(size + 1)]
    allowed = [
        cost(head)
        for head in heads
        if is_allowed(head, found)
        and mutual_information(weights, sf.Mask.from_indices(head, size), bounded.bins)
        <= bounded.information_bits
    ]
    if found.meets_security and found.meets_information:
        assert cost(found.mask.to_indices().tolist()) == min(allowed)
    else:
        assert not allowed


@settings(max_examples=150)
@given(
    scores=st.lists(st.floats(0, width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=40),
    seed=st.integers(0, 2**32 - 1),
)
def test_selection_keeps_what_it_promises(scores, seed):
    rng = np.random.default_rng(seed)
    vector = np.array(scores, dtype=np.float32)
    weights = rng.normal(size=len(scores)).astype(np.float32)
    limits = limits_of(rng)
    found = select(vector, weights, limits)
    needed = max(found.best_count, found.security_count, found.information_count)
    assert found.count == min(found.budget_count, needed)
    assert found.mask == top_k(vector, found.count)
    assert found.information_bits == mutual_information(weights, found.mask, limits.bins)
    assert 0.0 <= found.share <= 1.0
    assert found.meets_security == (found.share_shortfall == 0.0)
    assert found.meets_information == (found.information_bits <= limits.information_bits)
    assert found.information_excess_bits == max(0.0, found.information_bits - limits.information_bits)


def masked_histogram_bits(weights, masked, bins):
    """I(W; masked W) from a two-dimensional histogram, eq. 3."""
    span = (min(0.0, weights.min()), max(0.0, weights.max()))
    counts, _, _ = np.histogram2d(weights, np.where(masked, 0.0, weights), bins=bins, range=(span, span))
    joint = counts / counts.sum()
    product = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    present = joint > 0
    return float((joint[present] * np.log2(joint[present] / product[present])).sum())


@DTYPES
@pytest.mark.parametrize("centre", [-5.0, -0.3, 0.0, 4.0])
@pytest.mark.parametrize("bins", [1, 7, 256])
def test_mutual_information_is_that_of_a_histogram(centre, bins, dtype):
    rng = np.random.default_rng(bins)
    weights = rng.normal(centre, 1.0, 5000).astype(dtype)
    for share in [0.0, 0.1, 0.5, 0.99, 1.0]:
        masked = rng.random(weights.size) < share
        expected = masked_histogram_bits(weights.astype(np.float64), masked, bins)
        found = mutual_information(weights, sf.Mask.from_bool(masked), bins)
        assert found == pytest.approx(expected, abs=1e-10)


@DTYPES
def test_results_do_not_depend_on_threads(dtype):
    rng = np.random.default_rng(9)
    size = 300_001
    weights = rng.normal(size=size).astype(dtype)
    for kind in KINDS:
        scores = scores_of(kind, size, rng, dtype)
        limits = SelectionLimits(budget=0.9, exposed_share=0.2, information_bits=2.5)
        assert len({repr(select(scores, weights, limits, threads=threads)) for threads in (1, 2, 5)}) == 1
        masks = [select(scores, weights, limits, threads=threads).mask for threads in (1, 2, 5)]
        assert masks[0] == masks[1] == masks[2]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0])
def test_refused_scores_are_named(bad):
    scores = np.ones(200_000)
    scores[[70_000, 190_000]] = bad
    limits = SelectionLimits(budget=0.5)
    for threads in (1, 2):
        with pytest.raises(sf.RangeError, match="score at position 70000 "):
            select(scores, np.ones(scores.size), limits, threads=threads)
        with pytest.raises(sf.RangeError, match="score at position 70000 "):
            top_k(scores, 3, threads=threads)
    if not math.isfinite(bad):
        with pytest.raises(sf.RangeError, match="weight at position 70000 "):
            select(np.ones(scores.size), scores, limits)
        with pytest.raises(sf.RangeError, match="weight at position 70000 "):
            mutual_information(scores, sf.Mask.empty(scores.size))


@pytest.mark.parametrize(
    "changes",
    [
        {"budget": 0.0},
        {"budget": "half"},
        {"exposed_share": 0.0},
        {"exposure_decay": math.nan},
        {"information_bits": -1.0},
        {"bins": 65_537},
        {"bins": 2.5},
        {"cost_weight": 0.0},
        {"gain_weight": math.inf},
    ],
    ids=str,
)
def test_refused_limits(changes):
    with pytest.raises(sf.ParameterError):
        select(np.ones(4), np.ones(4), SelectionLimits(**({"budget": 0.5} | changes)))


def test_refused_arrays():
    limits = SelectionLimits(budget=0.5)
    with pytest.raises(sf.ParameterError, match="4 scores and 3 weights"):
        select(np.ones(4), np.ones(3), limits)
    with pytest.raises(sf.ParameterError, match="no scores"):
        select(np.ones(0), np.ones(0), limits)
    with pytest.raises(sf.ArrayTypeError, match="weights has dtype float32"):
        select(np.ones(4), np.ones(4, dtype=np.float32), limits)
    with pytest.raises(sf.ArrayTypeError):
        top_k(np.ones((2, 2)), 1)
    with pytest.raises(sf.ParameterError, match="5 of 4"):
        top_k(np.ones(4), 5)
    with pytest.raises(sf.ParameterError, match="no weights"):
        mutual_information(np.ones(0), sf.Mask.empty(0))
    with pytest.raises(sf.ParameterError, match="4 and 3"):
        mutual_information(np.ones(3), sf.Mask.empty(4))
    with pytest.raises(sf.ArrayTypeError, match="expected a Mask"):
        mutual_information(np.ones(3), np.zeros(3, dtype=bool))


FREE = {"budget": 1.0, "exposed_share": 1.0, "exposure_decay": 1e-9, "information_bits": math.inf}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("cost", [0.11, 1.0, 2.5])
@pytest.mark.parametrize(
    "scores", [np.linspace(0.0, 3.0, 12), np.full(12, 0.1), np.zeros(12), np.repeat([1.0, 4.0, 0.25], 4)]
)
def test_the_objective_without_bars_is_the_plain_difference(scores, cost, dtype):
    scores = np.random.default_rng(5).permutation(scores).astype(dtype)
    limits = SelectionLimits(**FREE, cost_weight=cost, gain_weight=1.5, normalised=False)
    chosen = select(scores, np.ones(12, dtype), limits)
    ranked = np.sort(scores.astype(np.float64))[::-1]
    objective = cost * np.arange(13) - 1.5 * np.concatenate([[0.0], np.cumsum(ranked)])
    assert objective[chosen.best_count] == pytest.approx(objective.min(), rel=1e-6, abs=1e-9)


@given(budget=st.floats(0.0, 1.0), size=st.integers(0, 2**31))
def test_a_budget_holds_as_many_positions_as_fit(budget, size):
    count = positions_in_budget(budget, size)
    assert 0 <= count <= size
    assert count == 0 or count / size <= budget
    assert count == size or (count + 1) / size > budget


@pytest.mark.parametrize(
    ("budget", "size"), [(-0.1, 9), (1.1, 9), (math.nan, 9), ("half", 9), (0.0, -1), (0.5, -1), (0.5, 1.5)]
)
def test_a_budget_out_of_range_is_refused(budget, size):
    with pytest.raises(sf.ParameterError):
        positions_in_budget(budget, size)


@pytest.mark.parametrize(
    ("rates", "speeds", "clusters", "budgets"),
    [
        # Bandwidth over 50 is 1, 0.5, 0.8; speed over 24 is 0.5, 1, 0.25. The smaller ones are 0.5, 0.5, 0.25.
        ([50, 25, 40], [12, 24, 6], None, [1.0, 1.0, 0.5]),
        ([50, 45, 40, 35, 30], [24, 16, 12, 10, 8], None, [1, 2 / 3, 1 / 2, 5 / 12, 1 / 3]),  # the paper's
        ([50, 25, 10, 5, 7], [8, 8, 2, 2, 3], [0, 0, 2, 2, 1], [1.0, 0.5, 1.0, 0.5, 1.0]),
        ([0.001], [3e9], None, [1.0]),
    ],
)
def test_budgets_by_hand(rates, speeds, clusters, budgets):
    np.testing.assert_allclose(sense_crypt_budgets(rates, speeds, clusters), budgets)


@given(
    st.lists(st.tuples(*[st.floats(1e-6, 1e12)] * 2, st.integers(0, 3)), min_size=1, max_size=20),
    st.floats(1e-3, 1e3),
)
def test_properties_of_budgets(clients, scale):
    rates, speeds, clusters = (np.array(column) for column in zip(*clients, strict=True))
    budgets = sense_crypt_budgets(rates, speeds, clusters)
    assert (budgets > 0).all()
    for cluster in set(clusters.tolist()):
        assert budgets[clusters == cluster].max() == 1.0
    np.testing.assert_allclose(sense_crypt_budgets(rates * scale, speeds, clusters), budgets)


@pytest.mark.parametrize(
    ("rates", "speeds", "clusters", "said"),
    [
        ([1, 0], [1, 1], None, "bytes_per_second must be finite and above zero, client 1"),
        ([1, 1], [float("nan"), 1], None, "compute_speed must be finite and above zero, client 0"),
        ([], [], None, "an entry for each client"),
        ([1], [1, 1], None, "got 1, 2 and 1"),
        ([1, 1], [1, 1], [0], "got 2, 2 and 1"),
        ([1, 1], [1, 1], [0, -1], "whole numbers from 0"),
    ],
)
def test_budgets_of_no_clients_are_refused(rates, speeds, clusters, said):
    with pytest.raises(sf.ParameterError, match=said):
        sense_crypt_budgets(rates, speeds, clusters)
