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

from shieldfl.errors import ArrayTypeError, ParameterError, RangeError
from shieldfl.lab.simulation.data import Dataset, load_dataset
from shieldfl.learning.networks import build_model
from shieldfl.learning.scores import taylor_sensitivity
from shieldfl.learning.sgd import train_locally
from shieldfl.methods.sense_crypt import clustering
from shieldfl.methods.sense_crypt.clustering import cluster_clients, join_cluster, noised_sensitivity
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


def test_the_same_input_gives_the_same_clusters():
    vectors = np.random.default_rng(3).standard_normal((30, 50)).astype(np.float32)
    one, other = (cluster_clients(vectors, least_silhouette=-1, seed=5) for _ in range(2))
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(one.centres, other.centres)
    assert one.silhouette == other.silhouette


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


@pytest.mark.parametrize("least_members", [6, 11, 100])
def test_one_cluster_is_left_when_none_is_large_enough(least_members):
    found = cluster_clients(blobs((5, 5)), least_members)
    assert not found.labels.any()
    assert found.centres.size == 1
    assert "merged into the nearest: " in found.notes[0]


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


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_vector_names_its_client(bad):
    vectors = blobs((4, 4))
    vectors[5, 3] = bad
    with pytest.raises(RangeError, match="client 5"):
        cluster_clients(vectors)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"least_members": 0}, "least_members"),
        ({"least_members": 1.5}, "least_members"),
        ({"least_silhouette": 1.1}, "least_silhouette"),
        ({"least_silhouette": math.nan}, "least_silhouette"),
        ({"noise_deviation": -1.0}, "noise deviation"),
        ({"noise_deviation": math.inf}, "noise deviation"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**32}, "seed"),
    ],
)
def test_settings_are_checked(change, said):
    with pytest.raises(ParameterError, match=said):
        cluster_clients(blobs((2, 2)), **change)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0)])
def test_no_clients_or_values_are_refused(shape):
    with pytest.raises(ParameterError, match="at least one client"):
        cluster_clients(np.zeros(shape, dtype=np.float32))


@pytest.mark.parametrize("vectors", [np.zeros((2, 2)), np.zeros(4, dtype=np.float32), [[1.0]]])
def test_only_a_float32_matrix_is_taken(vectors):
    with pytest.raises(ArrayTypeError, match="float32 matrix"):
        cluster_clients(vectors)


def test_a_later_client_joins_the_nearest_centre():
    vectors = blobs((4, 4, 4))
    centres = vectors[cluster_clients(vectors).centres]
    assert [join_cluster(vector, centres) for vector in blobs((2, 2, 2), seed=9)] == of_sizes(2, 2, 2)
    assert join_cluster(centres[1], np.stack([centres[1], centres[1]])) == 0


def test_a_later_client_is_checked():
    centres = blobs((1, 1))
    with pytest.raises(ParameterError, match="3 values, the centres 40"):
        join_cluster(np.zeros(3, dtype=np.float32), centres)
    with pytest.raises(ParameterError, match="at least one"):
        join_cluster(centres[0], centres[:0])
    with pytest.raises(ArrayTypeError):
        join_cluster(centres[0].astype(np.float64), centres)
    with pytest.raises(RangeError, match="NaN"):
        join_cluster(np.full(40, np.nan, dtype=np.float32), centres)


SCORES = np.linspace(0.0, 1.0, 4000, dtype=np.float32)


def test_clipping_keeps_the_direction():
    clipped = noised_sensitivity(SCORES, 0.5, 0.0)
    assert np.linalg.norm(clipped.astype(np.float64)) == pytest.approx(0.5, rel=1e-6)
    np.testing.assert_allclose(clipped / clipped[-1], SCORES, rtol=1e-5)
    np.testing.assert_array_equal(noised_sensitivity(SCORES, 1e3, 0.0), SCORES)


def test_without_a_norm_nothing_is_changed():
    same = noised_sensitivity(SCORES, None, 0.0)
    np.testing.assert_array_equal(same, SCORES)
    assert not np.shares_memory(same, SCORES)


def test_noise_is_scaled_to_the_norm():
    clipped = noised_sensitivity(SCORES, 0.5, 0.0)
    noise = noised_sensitivity(SCORES, 0.5, 8.0, threads=1).astype(np.float64) - clipped
    # Four thousand draws estimate a deviation to 1.1 %; 7 % are six of these.
    assert noise.std() == pytest.approx(8.0 * 0.5, rel=0.07)
    assert abs(noise.mean()) < 6 * 8.0 * 0.5 / math.sqrt(noise.size)
    assert noised_sensitivity(SCORES, 0.5, 8.0)[0] != noised_sensitivity(SCORES, 0.5, 8.0)[0]


@pytest.mark.parametrize(
    ("norm", "multiplier", "said"),
    [
        (0.0, 1.0, "clipping norm"),
        (math.nan, 1.0, "clipping norm"),
        (1.0, -1.0, "noise multiplier"),
        (1.0, math.nan, "noise multiplier"),
        (None, 1.0, "give one"),
    ],
)
def test_noise_settings_are_checked(norm, multiplier, said):
    with pytest.raises(ParameterError, match=said):
        noised_sensitivity(SCORES, norm, multiplier)


@pytest.mark.parametrize("norm", [None, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_bad_scores_never_leave(bad, norm):
    with pytest.raises(RangeError):
        noised_sensitivity(np.array([0.0, bad], dtype=np.float32), norm, 0.0)
    with pytest.raises(ArrayTypeError):
        noised_sensitivity(np.zeros(2), norm, 0.0)


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


@pytest.mark.slow
def test_label_groups_of_mnist_are_found(data_dir):
    check_groups(*grouped_sensitivities(load_dataset("mnist", data_dir), 600))
