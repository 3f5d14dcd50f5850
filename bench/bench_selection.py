"""SenseCrypt's selection, its parts, and the same in NumPy. Every benchmark checks its result."""

from __future__ import annotations

import numpy as np
import pytest

import shieldfl as sf
from shieldfl.masks import SelectionLimits, mutual_information, select, top_k

SHARE = 0.1
BINS = 256

threads_used = pytest.mark.parametrize("threads", [1, 2], ids=lambda threads: f"threads={threads}")
dtypes = pytest.mark.parametrize(
    "dtype", [np.float32, np.float64], ids=lambda dtype: f"dtype={dtype.__name__}"
)


def sensitivities_of(update: np.ndarray) -> np.ndarray:
    gradient = np.random.default_rng(1).normal(0.0, 0.01, update.size)
    return np.abs(update * gradient).astype(update.dtype)


def sorted_head(scores: np.ndarray, count: int) -> np.ndarray:
    return np.argsort(-scores, kind="stable")[:count]


def entropy_less_what_is_hidden(weights: np.ndarray, masked: np.ndarray) -> float:
    """I(W; masked W) from counts in NumPy's own bins."""
    span = (min(0.0, weights.min()), max(0.0, weights.max()))
    totals, edges = np.histogram(weights, BINS, span)
    hidden, _ = np.histogram(weights[masked], BINS, span)
    zero_bin = np.searchsorted(edges, 0.0, side="right") - 1
    hidden[zero_bin] = totals[zero_bin]

    def pooled_bits(counts: np.ndarray) -> float:
        present = counts[counts > 0]
        return float((present * np.log2(present.sum() / present)).sum())

    return (pooled_bits(totals) - pooled_bits(hidden)) / weights.size


@dtypes
@threads_used
@pytest.mark.parametrize("budget", [0.3, 1.0], ids=lambda budget: f"budget={budget}")
def test_select(benchmark, size, update, threads, dtype, budget):
    weights = update.astype(dtype)
    scores = sensitivities_of(weights)
    found = benchmark(select, scores, weights, SelectionLimits(budget=budget), threads=threads)
    needed = max(found.best_count, found.security_count, found.information_count)
    assert found.count == min(found.budget_count, needed)
    expected = np.sort(sorted_head(scores, found.count))
    np.testing.assert_array_equal(found.mask.to_indices(), expected)
    assert found.best_count == (scores > scores.mean(dtype=np.float64)).sum()
    bits = entropy_less_what_is_hidden(weights.astype(np.float64), found.mask.to_bool())
    assert found.information_bits == pytest.approx(bits, abs=1e-3)


@dtypes
@threads_used
def test_top_scores(benchmark, size, update, threads, dtype):
    scores = sensitivities_of(update.astype(dtype))
    count = int(SHARE * size)
    found = benchmark(top_k, scores, count, threads=threads)
    np.testing.assert_array_equal(found.to_indices(), np.sort(sorted_head(scores, count)))


def test_top_scores_in_numpy(benchmark, size, update):
    """The same with a partition, which leaves open which of equal scores are taken, for comparison."""
    scores = sensitivities_of(update)
    count = int(SHARE * size)
    found = benchmark(np.argpartition, scores, size - count)[size - count :]
    assert scores[found].min() == np.sort(scores)[size - count]


@threads_used
def test_mutual_information(benchmark, size, update, threads):
    masked = np.random.default_rng(2).random(size) < SHARE
    mask = sf.Mask.from_bool(masked)
    bits = benchmark(mutual_information, update, mask, BINS, threads=threads)
    assert bits == pytest.approx(entropy_less_what_is_hidden(update.astype(np.float64), masked), abs=1e-3)


def test_mutual_information_in_numpy(benchmark, size, update):
    """The same with NumPy's histograms, for comparison."""
    masked = np.random.default_rng(2).random(size) < SHARE
    bits = benchmark(entropy_less_what_is_hidden, update, masked)
    assert bits == pytest.approx(mutual_information(update, sf.Mask.from_bool(masked), BINS), abs=1e-3)
