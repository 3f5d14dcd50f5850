"""What a reader of published figures can try."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shieldfl.privacy import mean_embedding
from shieldfl.simulation.data import Dataset, load_dataset

# --- Synthetic data: the released sums, and the scaling of the samples that they are made of ---

CLASSES = 10


def digits_without_one() -> tuple[Dataset, tuple[torch.Tensor, torch.Tensor]]:
    """The data set, and its neighbour in which the first sample is missing."""
    digits = load_dataset("digits")
    return digits, (digits.train_features[1:], digits.train_labels[1:])


def release_of_digits(digits: Dataset, monkeypatch: pytest.MonkeyPatch) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums as they are released for epsilon 1, and the random features, which are public."""
    seen: dict[str, Any] = {}
    sums_of, noise_of = mean_embedding._class_sums, mean_embedding.gaussian_noise

    def sums(features: Any, labels: Any, classes: int, frequencies: torch.Tensor) -> torch.Tensor:
        seen["frequencies"] = frequencies
        seen["sums"] = sums_of(features, labels, classes, frequencies)
        return seen["sums"]

    def noise(vector: Any, deviation: float) -> Any:
        seen["noise"] = noise_of(vector, deviation)
        return seen["noise"]

    monkeypatch.setattr(mean_embedding, "_class_sums", sums)
    monkeypatch.setattr(mean_embedding, "gaussian_noise", noise)
    mean_embedding.fit_synthetic_data(
        digits.train_features,
        digits.train_labels,
        CLASSES,
        epsilon=1.0,
        delta=1e-5,
        samples=10,
        seed=0,
        steps=1,
    )
    monkeypatch.undo()
    return (seen["sums"] + torch.from_numpy(seen["noise"]).view_as(seen["sums"])).float(), seen["frequencies"]


def impossible_coordinates(released: torch.Tensor, sums: torch.Tensor) -> int:
    """How many released float32 numbers are the sum of these and no float32 noise at all."""
    wanted, exact = released.numpy(), sums.numpy()
    nearest = (wanted.astype(np.float64) - exact).astype(np.float32)
    possible = np.zeros(wanted.shape, dtype=bool)
    for noise in (
        nearest,
        np.nextafter(nearest, np.float32(-np.inf)),
        np.nextafter(nearest, np.float32(np.inf)),
    ):
        possible |= (exact + noise).astype(np.float32) == wanted
    return int((~possible).sum())


def test_a_sum_with_rounded_noise_says_which_of_two_data_sets_it_is_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    digits, neighbour = digits_without_one()
    released, frequencies = release_of_digits(digits, monkeypatch)
    own = mean_embedding._class_sums(
        digits.train_features.flatten(1), digits.train_labels, CLASSES, frequencies
    )
    other = mean_embedding._class_sums(neighbour[0].flatten(1), neighbour[1], CLASSES, frequencies)
    assert released.numel() == 10_010
    assert impossible_coordinates(released, own) == 0
    # One would be enough: under the neighbouring data set it has the probability 0.
    found = impossible_coordinates(released, other)
    print(f"{found} of 10,010 released numbers are impossible under the neighbouring data set")
    assert found > 100


def write_mnist(folder: Path, train: np.ndarray, labels: np.ndarray) -> Path:
    """A folder with these training images, and with three black ones for testing."""
    folder.mkdir(parents=True)
    for name, array in {
        "train-images-idx3-ubyte": train,
        "train-labels-idx1-ubyte": labels,
        "t10k-images-idx3-ubyte": np.zeros((3, *train.shape[1:]), dtype=np.uint8),
        "t10k-labels-idx1-ubyte": np.zeros(3, dtype=np.uint8),
    }.items():
        head = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
        (folder / name).write_bytes(head + array.astype(np.uint8).tobytes())
    return folder


def neighbours(folder: Path) -> tuple[Dataset, Dataset]:
    """Two data sets of 200 dark images, of which the first one is replaced by a bright one in the second."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 20, (200, 8, 8), dtype=np.uint8)
    labels = generator.integers(0, CLASSES, 200, dtype=np.uint8)
    other = images.copy()
    other[0] = 255
    first, second = (write_mnist(folder / name, x, labels) for name, x in (("a", images), ("b", other)))
    return load_dataset("mnist", first), load_dataset("mnist", second)


def test_one_replaced_record_changes_what_all_other_samples_become(tmp_path: Path) -> None:
    first, second = neighbours(tmp_path)
    changed = (first.train_features[1:] != second.train_features[1:]).flatten(1).any(dim=1)
    assert bool(changed.all())
    assert not torch.equal(first.test_features, second.test_features)
    frequencies = torch.randn(64, 500, generator=torch.Generator().manual_seed(0)) / 8
    sums = [
        mean_embedding._class_sums(each.train_features.flatten(1), each.train_labels, CLASSES, frequencies)
        for each in (first, second)
    ]
    moved = float((sums[0] - sums[1]).norm())
    # The noise is made for one sample that comes or goes; replacing one is that twice.
    assert moved > 5 * 2 * mean_embedding._SENSITIVITY
