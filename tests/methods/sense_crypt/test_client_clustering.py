"""Clusters of clients: what is found, what is rejected or merged, and what is refused."""

from __future__ import annotations

import math
import warnings
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, silhouette_score

from shieldfl.errors import ShieldError
from shieldfl.methods.sense_crypt import clustering


class Found(NamedTuple):
    labels: np.ndarray
    centres: np.ndarray
    silhouette: float
    notes: tuple[str, ...]


def cluster_clients(*arguments: object, **options: object) -> Found:
    return Found(*clustering.cluster_clients(*arguments, **options))


def blobs(sizes: tuple[int, ...], values: int = 40, spread: float = 0.05, seed: int = 0) -> np.ndarray:
    """Clients at a distance of about ``spread`` from corners of a cube, sizes[c] of them at corner c."""
    generator = np.random.default_rng(seed)
    corners = np.eye(len(sizes), values)
    around = generator.standard_normal((sum(sizes), values)) * spread / math.sqrt(values)
    return (np.repeat(corners, sizes, axis=0) + around).astype(np.float32)


def of_sizes(*sizes: int) -> list[int]:
    return np.repeat(np.arange(len(sizes)), sizes).tolist()


@pytest.mark.parametrize("sizes", [(3, 3), (4, 5, 6), (2, 7, 3, 5)])
def test_separated_groups_are_found(sizes):
    vectors = blobs(sizes)
    found = cluster_clients(vectors)
    assert found.labels.tolist() == of_sizes(*sizes)
    assert found.labels.dtype == np.int64
    assert found.labels[found.centres].tolist() == list(range(len(sizes)))
    assert found.silhouette == pytest.approx(silhouette_score(vectors, found.labels), rel=1e-5)
    assert found.notes == ()


@given(st.permutations(range(12)), st.floats(1e-12, 1e12))
@settings(max_examples=25)
def test_order_and_scale_do_not_matter(order, scale):
    truth = np.repeat([0, 1, 2], 4)[order]
    found = cluster_clients(blobs((4, 4, 4))[order] * np.float32(scale))
    assert adjusted_rand_score(truth, found.labels) == 1.0
    _, first = np.unique(found.labels, return_index=True)
    assert (np.diff(first) > 0).all(), "clusters are numbered as they appear"


@pytest.mark.parametrize(
    ("shape", "said"), [((0, 4), "matrix"), ((4, 0), "matrix"), (4, "matrix"), ((4, 4), "client 0")]
)
def test_what_cannot_be_clustered_is_refused(shape, said):
    with pytest.raises(ShieldError, match=said):
        cluster_clients(np.full(shape, np.nan, np.float32))


def test_groups_far_from_the_origin_do_not_drown_in_rounding():
    # Distances are 1e-9 of the squared norms here: a plain Gram matrix in float32 would see nothing of them.
    far = np.full(64, 1000.0, dtype=np.float32)
    found = cluster_clients(blobs((5, 5), values=64) + far)
    assert found.labels.tolist() == of_sizes(5, 5)
    assert found.silhouette > 0.9


def test_what_has_no_groups_stays_together():
    vectors = np.random.default_rng(0).standard_normal((20, 300)).astype(np.float32)
    found = cluster_clients(vectors)
    assert not found.labels.any()
    assert found.centres.size == 1
    assert 0.0 < found.silhouette < 0.25
    assert "under 0.25" in found.notes[0]
    anyhow = cluster_clients(vectors, least_silhouette=-1)
    assert anyhow.centres.size > 1
    assert anyhow.silhouette == found.silhouette
    assert anyhow.notes == ()


@pytest.mark.parametrize("clients", [1, 2, 7])
def test_equal_vectors_are_one_cluster(clients):
    row = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    found = cluster_clients(np.tile(row, (clients, 1)))
    assert not found.labels.any()
    assert found.labels.size == clients
    assert found.centres.size == 1
    assert math.isnan(found.silhouette)
    assert found.notes == ()


def test_two_clients_are_no_evidence_of_clusters():
    found = cluster_clients(blobs((1, 1)))
    assert found.labels.tolist() == [0, 0]
    assert "undefined" in found.notes[0]
    assert cluster_clients(blobs((1, 1)), least_silhouette=-1).labels.tolist() == [0, 1]


def test_without_convergence_there_is_one_cluster(monkeypatch):
    monkeypatch.setattr(clustering, "_MOST_ITERATIONS", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = cluster_clients(blobs((4, 4)))
    assert not found.labels.any()
    assert found.centres.size == 1
    assert math.isnan(found.silhouette)
    assert "did not converge" in found.notes[0]


def test_small_clusters_join_the_nearest():
    # Two lonely clients beside the second group, and three groups that are large enough.
    vectors = blobs((5, 5, 5), spread=0.01)
    lonely = np.zeros((2, 40), dtype=np.float32)
    lonely[:, 1] = 1.0
    lonely[0, 7], lonely[1, 8] = 1.8, 1.8
    vectors = np.concatenate([vectors, lonely])
    alone = cluster_clients(vectors, least_silhouette=-1)
    assert alone.labels.tolist() == [*of_sizes(5, 5, 5), 3, 4]
    merged = cluster_clients(vectors, least_members=2)
    assert merged.labels.tolist() == [*of_sizes(5, 5, 5), 1, 1]
    assert merged.centres.tolist() == alone.centres[:3].tolist()
    assert merged.notes == ("clients in clusters of fewer than 2, merged into the nearest: 2",)
    assert merged.silhouette == alone.silhouette


@given(st.lists(st.integers(2, 6), min_size=1, max_size=6), st.integers(1, 12), st.integers(0, 99))
@settings(max_examples=30)
def test_no_cluster_is_too_small(sizes, least_members, seed):
    vectors = blobs(tuple(sizes), spread=1.0, seed=seed)
    found = cluster_clients(vectors, least_members, least_silhouette=-1)
    counts = np.bincount(found.labels)
    assert (counts >= min(least_members, len(vectors))).all()
    assert found.labels[found.centres].tolist() == list(range(counts.size))


def noised(vectors: np.ndarray, deviation: float, seed: int = 77) -> np.ndarray:
    noise = np.random.default_rng(seed).standard_normal(vectors.shape) * deviation
    return (vectors + noise).astype(np.float32)


def test_known_noise_does_not_hide_the_silhouette():
    vectors = noised(blobs((6, 6, 6), values=20_000), 0.03)
    blind = cluster_clients(vectors)
    assert not blind.labels.any()
    assert blind.silhouette < 0.1
    aware = cluster_clients(vectors, noise_deviation=0.03)
    assert aware.labels.tolist() == of_sizes(6, 6, 6)
    assert aware.silhouette > 0.5


@pytest.mark.parametrize("seed", [77, 78, 79, 80])
def test_noise_that_hides_everything_makes_no_clusters(seed):
    found = cluster_clients(noised(blobs((6, 6, 6), values=20_000), 1.0, seed), noise_deviation=1.0)
    assert not found.labels.any()
    assert math.isnan(found.silhouette)
    assert "undefined" in found.notes[0]
