"""What a reader of released data gets: synthetic samples, the sums behind them, normalisation."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shieldfl.lab.simulation.data import Dataset, load_dataset
from shieldfl.privacy import synthetic_data
from shieldfl.privacy.noise import gaussian_noise

# --- Synthetic data: the released sums, and the scaling of the samples that they are made of ---

CLASSES = 10


def digits_without_one() -> tuple[Dataset, tuple[torch.Tensor, torch.Tensor]]:
    """The data set, and its neighbour in which the first sample is missing."""
    digits = load_dataset("digits")
    return digits, (digits.train_features[1:], digits.train_labels[1:])


def release_of_digits(
    digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """The sums in steps as they are released for epsilon 1, and the random features and the grid, which are public."""
    seen: dict[str, Any] = {}
    sums_of, noise_of = synthetic_data._class_sums, synthetic_data._noise

    def sums(features: Any, labels: Any, classes: int, frequencies: torch.Tensor, grid: Any) -> torch.Tensor:
        seen.update(frequencies=frequencies, grid=grid)
        seen["sums"] = sums_of(features, labels, classes, frequencies, grid)
        return seen["sums"]

    def noise(shape: Any, deviation: float, grid: Any) -> torch.Tensor:
        seen["noise"] = noise_of(shape, deviation, grid)
        return seen["noise"]

    monkeypatch.setattr(synthetic_data, "_class_sums", sums)
    monkeypatch.setattr(synthetic_data, "_noise", noise)
    synthetic_data.fit_synthetic_data(
        digits.train_features,
        digits.train_labels,
        CLASSES,
        feature_range=digits.feature_range,
        epsilon=1.0,
        delta=1e-5,
        samples=10,
        seed=0,
        steps=1,
    )
    monkeypatch.undo()
    return seen["sums"] + seen["noise"], seen["frequencies"], seen["grid"]


def impossible_coordinates(released: torch.Tensor, sums: torch.Tensor, step: float) -> int:
    """How many released numbers are the sum of these and of no noise that is a multiple of the step, in steps."""
    steps = (released.double() - sums.double()) / step
    return int((steps != steps.round()).sum())


def missing_remainders(released: torch.Tensor, sums: torch.Tensor) -> int:
    """How many remainders modulo 64 no noise has that makes these sums the released ones: with noise in steps, none."""
    return 64 - len(((released - sums) % 64).unique())


def sums_of_doubles(samples: torch.Tensor, labels: torch.Tensor, frequencies: torch.Tensor) -> torch.Tensor:
    """The sums of the features over each class on no grid but that of floating point."""
    features = synthetic_data._fourier_features(samples.flatten(1).double(), frequencies.double())
    sums = torch.zeros(CLASSES, features.shape[1], dtype=torch.float64)
    return sums.index_add_(0, labels, features)


def impossible_floats(released: torch.Tensor, sums: torch.Tensor) -> int:
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


def test_no_released_sum_says_which_of_two_data_sets_it_is_of(monkeypatch: pytest.MonkeyPatch) -> None:
    digits, neighbour = digits_without_one()
    released, frequencies, grid = release_of_digits(digits, monkeypatch)
    own = synthetic_data._class_sums(
        digits.train_features.flatten(1), digits.train_labels, CLASSES, frequencies, grid
    )
    other = synthetic_data._class_sums(neighbour[0].flatten(1), neighbour[1], CLASSES, frequencies, grid)
    assert released.dtype == own.dtype == torch.int64
    assert released.numel() == 10_010
    # The noise of either data set takes every step of the grid: all remainders occur, so none rules one of them out.
    assert missing_remainders(released, own) == missing_remainders(released, other) == 0
    # They are at most the sensitivity apart.
    assert 0 < int((own - other).square().sum()) <= (grid.sensitivity * 2**grid.fraction_bits) ** 2
    # What a search would find: sums on a finer grid than the noise, and float32 noise on sums of doubles.
    coarse = own + 8 * (released - own)
    assert missing_remainders(coarse, own) == 56
    assert impossible_coordinates(coarse, other, 8) > 100
    sums = [
        sums_of_doubles(*each, frequencies)
        for each in ((digits.train_features, digits.train_labels), neighbour)
    ]
    noise = gaussian_noise(np.zeros(sums[0].numel(), dtype=np.float32), 6.0)
    rounded = (sums[0] + torch.from_numpy(noise).view_as(sums[0])).float()
    assert impossible_floats(rounded, sums[0]) == 0
    assert impossible_floats(rounded, sums[1]) > 100


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


def test_one_replaced_record_changes_itself_alone(tmp_path: Path) -> None:
    first, second = neighbours(tmp_path)
    assert torch.equal(first.train_features[1:], second.train_features[1:])
    assert torch.equal(first.test_features, second.test_features)
    assert not torch.equal(first.train_features[0], second.train_features[0])
    frequencies = torch.randn(64, 500, generator=torch.Generator().manual_seed(0)) / 8
    grid = synthetic_data._Grid.choose(4.0, 1000)

    def moved(samples: list[torch.Tensor]) -> float:
        sums = [
            synthetic_data._class_sums(each.flatten(1), first.train_labels, CLASSES, frequencies, grid)
            for each in samples
        ]
        return math.sqrt(int((sums[0] - sums[1]).square().sum())) * 2.0**-grid.fraction_bits

    # Replacing one is that it goes and another one comes.
    assert 0.0 < moved([first.train_features, second.train_features]) <= 2 * grid.sensitivity
    # What normalising by the samples at hand does: all others move along.
    standardised = [
        (each.train_features - each.train_features.mean()) / each.train_features.std()
        for each in (first, second)
    ]
    assert moved(standardised) > 5 * 2 * grid.sensitivity


def test_features_that_no_kernel_takes_add_nothing_to_the_sums() -> None:
    """NaN as an integer is the smallest there is, whose square is 0 in 64 bits: it would pass for short."""
    grid = synthetic_data._Grid.choose(4.0, 10)
    samples, labels = torch.ones(60, 4), torch.zeros(60, dtype=torch.int64)
    broken = synthetic_data._class_sums(samples, labels, 1, torch.full((4, 5), float("inf")), grid)
    assert not broken.any()
    assert synthetic_data._class_sums(samples, labels, 1, torch.full((4, 5), 0.5), grid).any()
