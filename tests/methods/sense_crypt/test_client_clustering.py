"""Clusters of clients: what is found, what is rejected or merged, and what is refused."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, silhouette_score

from shieldfl.errors import RangeError
from shieldfl.lab.simulation.data import Dataset, load_dataset
from shieldfl.learning.networks import build_model
from shieldfl.learning.scores import taylor_sensitivity
from shieldfl.learning.sgd import train_locally
from shieldfl.methods.sense_crypt import clustering
from shieldfl.methods.sense_crypt.clustering import ClusterRegistry, cluster_clients, noised_sensitivity
from shieldfl.models.torch_bridge import flatten, load_flat
from shieldfl.privacy.accountant import gaussian_noise_multiplier
from shieldfl.settings import TrainingSettings


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
    assert found.converged
    assert found.notes == ()


@given(st.permutations(range(12)), st.floats(1e-12, 1e12))
@settings(max_examples=25)
def test_order_and_scale_do_not_matter(order, scale):
    truth = np.repeat([0, 1, 2], 4)[order]
    found = cluster_clients(blobs((4, 4, 4))[order] * np.float32(scale))
    assert adjusted_rand_score(truth, found.labels) == 1.0
    _, first = np.unique(found.labels, return_index=True)
    assert (np.diff(first) > 0).all(), "clusters are numbered as they appear"


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
    assert found.converged
    assert 0.0 < found.silhouette < 0.25
    assert "under 0.25" in found.notes[0]
    anyhow = cluster_clients(vectors, least_silhouette=-1)
    assert anyhow.centres.size > 1
    assert anyhow.silhouette == found.silhouette
    assert anyhow.notes == ()


def test_the_middle_client_stands_for_all():
    vectors = np.array([[0.0], [1.0], [2.1]], dtype=np.float32)
    assert cluster_clients(vectors, least_members=3).centres.tolist() == [1]


@pytest.mark.parametrize("clients", [1, 2, 7])
def test_equal_vectors_are_one_cluster(clients):
    row = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    found = cluster_clients(np.tile(row, (clients, 1)))
    assert not found.labels.any()
    assert found.labels.size == clients
    assert found.centres.size == 1
    assert math.isnan(found.silhouette)
    assert found.converged
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
    assert not found.converged
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


def test_a_later_client_joins_the_nearest_centre():
    registry = ClusterRegistry(18, True, 1, 0.25, 0.0)
    for client, vector in enumerate((*blobs((4, 4, 4)), *blobs((2, 2, 2), seed=9))):
        registry.introduce(client, vector, 1.0, 1.0)
        if client == 11:
            registry.assign()
    assert registry.assign() == ()
    assert registry.clusters.tolist() == [*of_sizes(4, 4, 4), *of_sizes(2, 2, 2)]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_scores_never_leave(bad):
    with pytest.raises(RangeError):
        noised_sensitivity(np.array([0.0, bad], dtype=np.float32), 1.0, 0.0)


SCORES = np.linspace(0.0, 1.0, 4000, dtype=np.float32)


def test_noise_is_scaled_to_the_norm():
    clipped = noised_sensitivity(SCORES, 0.5, 0.0)
    noise = noised_sensitivity(SCORES, 0.5, 8.0, threads=1).astype(np.float64) - clipped
    # Four thousand draws estimate a deviation to 1.1 %; 7 % are six of these.
    assert noise.std() == pytest.approx(8.0 * 0.5, rel=0.07)
    assert abs(noise.mean()) < 6 * 8.0 * 0.5 / math.sqrt(noise.size)
    assert noised_sensitivity(SCORES, 0.5, 8.0)[0] != noised_sensitivity(SCORES, 0.5, 8.0)[0]


def grouped_sensitivities(dataset: Dataset, samples: int) -> tuple[np.ndarray, np.ndarray]:
    """Sensitivities of 20 clients, 4 for each pair of digits, after an epoch from a common model."""
    generator = np.random.default_rng(0)
    model = build_model("mlp", dataset.feature_shape, dataset.classes, seed=0)
    initial, vectors = flatten(model), []
    for group in range(5):
        own = torch.isin(dataset.train_labels, torch.tensor([2 * group, 2 * group + 1])).nonzero().ravel()
        for part in np.array_split(generator.permutation(own.numpy()), 4):
            features, labels = dataset.train_features[part[:samples]], dataset.train_labels[part[:samples]]
            load_flat(model, initial)
            train_locally(model, features, labels, TrainingSettings(local_epochs=1), seed=len(vectors))
            vectors.append(noised_sensitivity(taylor_sensitivity(model, features, labels), 1e-3, 0.0))
    return np.stack(vectors), np.repeat(np.arange(5), 4)


def check_groups(vectors: np.ndarray, truth: np.ndarray) -> None:
    found = cluster_clients(vectors, least_members=2)
    assert adjusted_rand_score(truth, found.labels) == 1.0
    assert found.silhouette > 0.5
    assert found.notes == ()


def test_label_groups_of_digits_are_found():
    vectors, truth = grouped_sensitivities(load_dataset("digits"), 100)
    check_groups(vectors, truth)
    # Enough noise for epsilon 1 hides them all.
    sigma = gaussian_noise_multiplier(1.0, 1e-5)
    hidden = np.stack([noised_sensitivity(vector, 1e-3, sigma) for vector in vectors])
    assert not cluster_clients(hidden, noise_deviation=1e-3 * sigma).labels.any()
