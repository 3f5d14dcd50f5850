"""How well noised sensitivities tell clients' data apart, over epsilon: SenseCrypt's figures 16 and 17.

    SHIELDFL_DATA=... python bench/experiments/clustering.py --json clustering.json --picture clustering.png

Clients share the labels in groups (MNIST: 5 groups of 2 digits). All train one epoch from the same model and score
their weights by eq. 2. Then noise is added in three ways, several times each, since it comes from a generator that
cannot be seeded:

- ``algorithm 2``: N(0, sigma² G²) on each of the P values, as the paper writes it.
- ``sigma G in all``: the whole noise vector is as long as sigma G, so sigma G / sqrt(P) on each value. That is not
  (epsilon, delta)-private. It is here because the paper's curves, which begin to fall at 0.2, are nearest to it.
- ``64 directions``: each client projects its vector onto the same 64 random directions, then clips it and adds N(0,
  sigma² G²) to 64 values instead of P. As private as algorithm 2, and not in the paper.

G is below the norm of every client's vector, so that all are clipped to it. A smaller G changes nothing, as signal and
noise shrink together; a larger one adds noise and no signal.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_rand_score, silhouette_score

from shieldfl.lab.simulation.data import Dataset, load_dataset
from shieldfl.learning.local_trainer import train_locally
from shieldfl.learning.networks import build_model, default_model
from shieldfl.learning.scores import taylor_sensitivity
from shieldfl.methods.sense_crypt.clustering import cluster_clients, noised_sensitivity
from shieldfl.models.torch_bridge import flatten, load_flat
from shieldfl.privacy.accountant import gaussian_noise_multiplier
from shieldfl.settings import TrainingSettings

DELTA = 1e-5
CLIP_NORM = 1e-3
DIRECTIONS = 64
EPSILONS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
LEAST_SILHOUETTE = 0.25


@dataclass(frozen=True)
class Row:
    """Figures of one way of adding noise at one epsilon; those with an entry for each repetition are tuples."""

    noise: str
    epsilon: float
    noise_multiplier: float
    rand_index: tuple[float, ...]
    clusters: tuple[int, ...]
    silhouette: tuple[float, ...]
    silhouette_without_noise: tuple[float, ...]
    k_means_rand_index: tuple[float, ...]
    k_means_silhouette: tuple[float, ...]


def sensitivities(
    dataset: Dataset, clients: int, groups: int, samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the clients' sensitivities (K, P) and the group of each."""
    generator = np.random.default_rng(seed)
    model = build_model(default_model(dataset.name), dataset.feature_shape, dataset.classes, seed)
    initial, vectors = flatten(model), []
    truth = np.sort(np.arange(clients) % groups)
    for group, own in enumerate(np.array_split(np.arange(dataset.classes), groups)):
        members = generator.permutation(np.flatnonzero(np.isin(dataset.train_labels, own)))
        for part in np.array_split(members, np.count_nonzero(truth == group)):
            some = torch.from_numpy(part[: samples or None])
            features, labels = dataset.train_features[some], dataset.train_labels[some]
            load_flat(model, initial)
            train_locally(model, features, labels, TrainingSettings(local_epochs=1), seed=len(vectors))
            vectors.append(taylor_sensitivity(model, features, labels))
    return np.stack(vectors), truth


def measure(
    noise: str, vectors: np.ndarray, truth: np.ndarray, epsilon: float, multiplier: float, repeats: int
) -> Row:
    """Cluster ``repeats`` times with fresh noise."""
    figures = []
    for _ in range(repeats):
        noised = np.stack([noised_sensitivity(vector, CLIP_NORM, multiplier) for vector in vectors])
        labels, centres, silhouette, _ = cluster_clients(noised, least_silhouette=-1)
        corrected = cluster_clients(noised, least_silhouette=-1, noise_deviation=multiplier * CLIP_NORM)[2]
        # K-means sees distances alone, and K points have K coordinates.
        left, lengths, _ = np.linalg.svd(noised - noised.mean(axis=0), full_matrices=False)
        points = left * (lengths / lengths.max())
        means = KMeans(int(truth.max()) + 1, n_init=10, random_state=0).fit_predict(points)
        figures.append(
            (
                adjusted_rand_score(truth, labels),
                centres.size,
                silhouette,
                corrected,
                adjusted_rand_score(truth, means),
                float(silhouette_score(points, means)),
            )
        )
    return Row(noise, epsilon, multiplier, *zip(*figures, strict=True))


def curves(
    vectors: np.ndarray, truth: np.ndarray, epsilons: list[float], repeats: int, seed: int
) -> list[Row]:
    """Measure each way of adding noise at each epsilon, and none at all."""
    parameters = vectors.shape[1]
    directions = np.random.default_rng(seed).standard_normal((parameters, DIRECTIONS), dtype=np.float32)
    projected = vectors @ directions
    rows = []
    for noise, uploads, scale in (
        ("algorithm 2", vectors, 1.0),
        ("sigma G in all", vectors, 1.0 / math.sqrt(parameters)),
        (f"{DIRECTIONS} directions", projected, 1.0),
    ):
        for epsilon in epsilons:
            sigma = gaussian_noise_multiplier(epsilon, DELTA)
            rows.append(measure(noise, uploads, truth, epsilon, sigma * scale, repeats))
            print(line(rows[-1]), flush=True)
        rows.append(measure(noise, uploads, truth, math.inf, 0.0, 1))
        print(line(rows[-1]), flush=True)
    return rows


HEADER = (
    f"{'':33} | {'affinity propagation':>20} {'silhouette':>30} | {'k-means':>20}\n{'noise':14} {'epsilon':>8} "
    f"{'per G':>9} | {'ARI':>20} {'clusters':>8} {'measured':>8} {'less noise':>10} {'kept':>5} "
    f"| {'ARI':>20} {'silhouette':>10}"
)


def line(row: Row) -> str:
    """Medians, with the range of the Rand indices in brackets."""

    def spread(values: tuple[float, ...]) -> str:
        return f"{np.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"

    corrected = np.array(row.silhouette_without_noise)
    known = corrected[np.isfinite(corrected)]
    kept = f"{np.count_nonzero(known >= LEAST_SILHOUETTE)}/{corrected.size}"
    shown = f"{np.median(known):.2f}" if known.size else "-"
    measured = [value for value in row.silhouette if math.isfinite(value)]
    return (
        f"{row.noise:14} {row.epsilon:8g} {row.noise_multiplier:9.3g} | {spread(row.rand_index):>20} "
        f"{np.median(row.clusters):8g} {np.median(measured) if measured else math.nan:8.3f} {shown:>10} {kept:>5} "
        f"| {spread(row.k_means_rand_index):>20} {np.median(row.k_means_silhouette):10.3f}"
    )


def picture(rows: list[Row], path: Path) -> None:
    """Rand index and silhouette over epsilon."""
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    for number, noise in enumerate(dict.fromkeys(row.noise for row in rows)):
        own = [row for row in rows if row.noise == noise and math.isfinite(row.epsilon)]
        epsilons, colour = [row.epsilon for row in own], f"C{number}"
        left.semilogx(epsilons, [np.median(row.rand_index) for row in own], "o-", color=colour, label=noise)
        left.fill_between(
            epsilons,
            [min(row.rand_index) for row in own],
            [max(row.rand_index) for row in own],
            color=colour,
            alpha=0.15,
            linewidth=0,
        )
        left.semilogx(epsilons, [np.median(row.k_means_rand_index) for row in own], "--", color=colour)
        right.semilogx(
            epsilons, [np.nanmedian(row.silhouette) for row in own], "o-", color=colour, label=noise
        )
        right.semilogx(epsilons, [np.median(row.k_means_silhouette) for row in own], "--", color=colour)
    left.set(xlabel="epsilon (delta 1e-5)", ylabel="adjusted Rand index", ylim=(-0.15, 1.05))
    right.set(xlabel="epsilon (delta 1e-5)", ylabel="silhouette, as measured")
    left.set_title("solid: affinity propagation, dashed: k-means", fontsize="medium")
    right.legend(frameon=False)
    figure.savefig(path, dpi=130)


def plain(value: object) -> object:
    """Put None where JSON has no number."""
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, tuple):
        return [plain(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--groups", type=int, default=5)
    parser.add_argument("--samples", type=int, default=0, help="of each client at most; 0 for all")
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--repeats", type=int, default=5, help="draws of noise for each epsilon")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    dataset = load_dataset(options.dataset)
    vectors, truth = sensitivities(dataset, options.clients, options.groups, options.samples, options.seed)
    norms = np.linalg.norm(vectors, axis=1)
    print(
        f"{dataset.description}: {options.clients} clients in {options.groups} groups, P = {vectors.shape[1]:,}, "
        f"norms {norms.min():.3g} to {norms.max():.3g}, G = {CLIP_NORM:g}"
    )
    labels, centres, silhouette, _ = cluster_clients(vectors, least_silhouette=-1)
    print(
        f"not clipped, no noise (section 3.1): ARI {adjusted_rand_score(truth, labels):.2f}, "
        f"{centres.size} clusters, silhouette {silhouette:.3f}\n{HEADER}"
    )
    rows = curves(vectors, truth, options.epsilons, options.repeats, options.seed)
    if options.json:
        options.json.write_text(json.dumps([plain(asdict(row)) for row in rows], indent=1))
    if options.picture:
        picture(rows, options.picture)


if __name__ == "__main__":
    main()
