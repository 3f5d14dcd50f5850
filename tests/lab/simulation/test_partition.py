"""A partition must use every sample once, serve every client, and be the same for a seed."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from shieldfl.errors import ParameterError
from shieldfl.lab.simulation.data import dirichlet_partition, grouped_partition, label_shares

CONCENTRATIONS = st.one_of(st.floats(1e-320, 1e308), st.sampled_from([0.2, 0.5, 1.0, 2.0, math.inf]))


def label_histogram(partition: list[np.ndarray], labels: np.ndarray, classes: int) -> np.ndarray:
    """The samples of each class that each client holds."""
    return np.array([np.bincount(np.asarray(labels)[part], minlength=classes) for part in partition])


def balanced_labels(samples: int, classes: int = 10) -> np.ndarray:
    return np.arange(samples) % classes


@given(
    labels=st.lists(st.integers(0, 9), max_size=300),
    clients=st.integers(1, 25),
    alpha=CONCENTRATIONS,
    seed=st.integers(0, 2**32),
)
def test_every_sample_goes_to_exactly_one_client(
    labels: list[int], clients: int, alpha: float, seed: int
) -> None:
    """And nobody is without any."""
    assume(clients <= len(labels))
    parts = dirichlet_partition(labels, clients, alpha, seed)
    assert len(parts) == clients
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    if alpha == math.inf:
        assert max(map(len, parts)) - min(map(len, parts)) <= 1
    for part in parts:
        assert part.dtype == np.int64
        assert len(part)
        assert (np.diff(part) > 0).all()
    again = dirichlet_partition(np.array(labels, dtype=np.int64), clients, alpha, seed)
    assert all(np.array_equal(one, two) for one, two in zip(parts, again, strict=True))


def test_class_shares_follow_the_dirichlet_moments() -> None:
    clients, alpha, per_class, classes = 5, 0.5, 400, 1000
    labels = np.repeat(np.arange(classes), per_class)
    shares = label_histogram(dirichlet_partition(labels, clients, alpha, 3), labels, classes) / per_class
    # Moments of one coordinate of Dir(alpha, ..., alpha); the shares of different classes are independent.
    mean = 1 / clients
    variance = mean * (1 - mean) / (clients * alpha + 1)
    assert np.abs(shares.mean(axis=1) - mean).max() < 5 * math.sqrt(variance / classes)
    np.testing.assert_allclose(shares.var(axis=1), variance, rtol=0.15)


def test_extreme_concentrations_reach_the_limits_of_the_distribution() -> None:
    labels = balanced_labels(400, 4)
    even = label_histogram(dirichlet_partition(labels, 5, 1e308, 0), labels, 4)
    np.testing.assert_array_equal(even, np.full((5, 4), 20))
    single = label_histogram(dirichlet_partition(labels, 5, 1e-320, 0), labels, 4)
    assert (single.max(axis=0) > 95).all()  # but for a sample that serves each of the others


def test_clients_without_samples_are_served_from_the_largest() -> None:
    sizes = sorted(len(part) for part in dirichlet_partition(np.zeros(50, dtype=np.int64), 8, 1e-6, 0))
    assert sizes == [1] * 7 + [43]


@pytest.mark.parametrize(
    ("samples", "clients", "alpha", "message"),
    [
        (10, 11, 0.5, "1 each: use fewer clients$"),
        (0, 1, 0.5, "fewer clients"),
    ],
)
def test_impossible_requests_are_refused(samples: int, clients: int, alpha: float, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        dirichlet_partition(balanced_labels(samples), clients, alpha, 0)


@pytest.mark.parametrize("classes_per_client", [10, 5, 2, 1])
def test_groups_have_so_many_classes_each(classes_per_client: int) -> None:
    labels = balanced_labels(1000)
    parts = grouped_partition(labels, 10, classes_per_client, 3)
    assert [len(np.unique(labels[part])) for part in parts] == [classes_per_client] * 10
    shares = label_shares(parts, labels, 10)
    np.testing.assert_allclose(shares[shares > 0.0], 1.0 / classes_per_client)


@given(
    labels=st.lists(st.integers(0, 9), min_size=40, max_size=200),
    clients=st.integers(1, 12),
    classes_per_client=st.integers(1, 12),
    seed=st.integers(0, 2**32),
)
def test_groups_share_out_every_sample_once_and_no_class_is_in_two(
    labels: list[int], clients: int, classes_per_client: int, seed: int
) -> None:
    groups = math.ceil(len(set(labels)) / classes_per_client)
    try:
        parts = grouped_partition(labels, clients, classes_per_client, seed)
    except ParameterError:
        by_group = np.array_split(np.unique(labels), groups)
        fewest = min(np.isin(labels, own).sum() for own in by_group)
        assert clients < groups or fewest < math.ceil(clients / groups) * len(by_group[0])
        return
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(len(labels)))
    held = [frozenset(np.array(labels)[part]) for part in parts]
    assert max(map(len, held)) <= classes_per_client
    members = np.array_split(np.arange(clients), groups)
    unions = [frozenset().union(*(held[client] for client in own)) for own in members]
    for one, two in itertools.pairwise(unions):
        assert max(one) < min(two)
    again = grouped_partition(np.array(labels), clients, classes_per_client, seed)
    assert all(np.array_equal(one, two) for one, two in zip(parts, again, strict=True))


@pytest.mark.parametrize(
    ("clients", "classes_per_client", "message"),
    [
        (4, 2, "5 groups, and there are 4"),
        (30, 10, "without any"),
    ],
)
def test_impossible_groups_are_refused(clients: int, classes_per_client: int, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        grouped_partition(balanced_labels(20), clients, classes_per_client, 0)
