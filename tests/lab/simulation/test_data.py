"""Data sets by name and the readers of their files; partitions use every sample once and serve every client."""

from __future__ import annotations

import gzip
import itertools
import math
import struct
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.simulation import DATASETS
from shieldfl.lab.simulation.data import (
    Dataset,
    dirichlet_partition,
    grouped_partition,
    label_shares,
    load_dataset,
    read_cifar,
    read_idx,
)

IDX_FILES = {
    "train-images-idx3-ubyte": (6, 4, 4),
    "train-labels-idx1-ubyte": (6,),
    "t10k-images-idx3-ubyte": (3, 4, 4),
    "t10k-labels-idx1-ubyte": (3,),
}


def idx_bytes(array: np.ndarray) -> bytes:
    header = struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape)
    return header + array.astype(np.uint8).tobytes()


def write_idx_folder(folder: Path, compress: bool = False, dotted: bool = False) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(0)
    arrays = {}
    for name, shape in IDX_FILES.items():
        limit = 10 if "labels" in name else 256
        array = generator.integers(0, limit, shape, dtype=np.uint8)
        content = idx_bytes(array)
        target = folder / ((name.replace("-idx", ".idx") if dotted else name) + (".gz" if compress else ""))
        target.write_bytes(gzip.compress(content) if compress else content)
        arrays[name] = array
    return arrays


def write_cifar(path: Path, labels: list[tuple[int, ...]], seed: int) -> np.ndarray:
    path.parent.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(seed).integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8)
    records = b"".join(bytes(own) + image.tobytes() for own, image in zip(labels, images, strict=True))
    path.write_bytes(gzip.compress(records) if path.suffix == ".gz" else records)
    return images


CHANNELS = {
    "mnist": [(0.1307, 0.3081)],
    "fashion-mnist": [(0.2860, 0.3530)],
    "cifar10": [(0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616)],
}
"""Mean and standard deviation of the published training sets, as everybody uses them."""


def check_normalised(dataset: Dataset, train: np.ndarray, test: np.ndarray, full_scale: float) -> None:
    """Compare with the definition: scale, subtract the published mean, divide by the deviation, per channel."""
    scaled = train.astype(np.float64) / full_scale
    mean, deviation = np.array(CHANNELS[dataset.name]).T[:, None, :, None, None]
    np.testing.assert_allclose(
        dataset.train_features.numpy(), (scaled - mean) / deviation, rtol=1e-5, atol=1e-6
    )
    expected_test = (test / full_scale - mean) / deviation
    np.testing.assert_allclose(dataset.test_features.numpy(), expected_test, rtol=1e-5, atol=1e-6)
    assert dataset.train_features.dtype == dataset.test_features.dtype == torch.float32
    assert dataset.train_labels.dtype == dataset.test_labels.dtype == torch.int64


def test_digits_need_no_files(tmp_path: Path) -> None:
    from sklearn.datasets import load_digits

    digits = load_dataset("digits", tmp_path / "absent")
    assert (digits.classes, digits.feature_shape) == (10, (1, 8, 8))
    assert (len(digits.train_labels), len(digits.test_labels)) == (1437, 360)
    assert digits.description == "scikit-learn digits (1,437 train / 360 test)"
    # Stratified: each class keeps its share in both parts; and the parts make up the whole.
    whole = np.bincount(load_digits().target)
    test_counts = torch.bincount(digits.test_labels).numpy()
    assert np.abs(test_counts - whole * 360 / 1797).max() < 1.0
    np.testing.assert_array_equal(test_counts + torch.bincount(digits.train_labels).numpy(), whole)
    assert abs(float(digits.train_features.mean())) < 0.01
    assert float(digits.train_features.std(correction=0)) == pytest.approx(1.0, abs=0.01)
    lowest, highest = digits.feature_range
    assert (lowest.shape, highest.shape) == ((1, 1, 1), (1, 1, 1))
    assert torch.equal(digits.train_features.amin(), lowest[0, 0, 0])
    assert torch.equal(digits.train_features.amax(), highest[0, 0, 0])
    again = load_dataset("digits")
    assert torch.equal(digits.train_features, again.train_features)
    assert torch.equal(digits.test_labels, again.test_labels)


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
@pytest.mark.parametrize(("compress", "dotted"), [(False, False), (True, False), (False, True)])
def test_idx_folder_is_read(tmp_path: Path, name: str, compress: bool, dotted: bool) -> None:
    arrays = write_idx_folder(tmp_path / name, compress, dotted)
    dataset = load_dataset(name, tmp_path)
    train, test = arrays["train-images-idx3-ubyte"][:, None], arrays["t10k-images-idx3-ubyte"][:, None]
    check_normalised(dataset, train, test, 255.0)
    assert dataset.train_labels.tolist() == arrays["train-labels-idx1-ubyte"].tolist()
    assert dataset.test_labels.tolist() == arrays["t10k-labels-idx1-ubyte"].tolist()
    assert (dataset.name, dataset.classes, dataset.feature_shape) == (name, 10, (1, 4, 4))
    assert dataset.description.endswith("subset (6/3)")


def test_cifar10_batches_are_read_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "cifar10"
    train = [write_cifar(folder / f"data_batch_{n}.bin", [(n,), (0,)], n) for n in (1, 2, 3)]
    test = write_cifar(folder / "test_batch.bin", [(9,)], 10)
    dataset = load_dataset("cifar10", tmp_path)
    assert dataset.train_labels.tolist() == [1, 0, 2, 0, 3, 0]
    assert dataset.test_labels.tolist() == [9]
    assert dataset.feature_shape == (3, 32, 32)
    check_normalised(dataset, np.concatenate(train), test, 255.0)


def test_a_plain_file_wins_over_its_compressed_copy(tmp_path: Path) -> None:
    folder = tmp_path / "cifar10"
    write_cifar(folder / "train.bin", [(1,), (2,)], 0)
    write_cifar(folder / "train.bin.gz", [(5,), (6,), (7,)], 2)
    write_cifar(folder / "test.bin.gz", [(3,)], 1)
    (folder / "batches.meta.txt").write_text("airplane\n")
    dataset = load_dataset("cifar10", tmp_path)
    assert dataset.train_labels.tolist() == [1, 2]
    assert dataset.description == "CIFAR-10 subset (2/1)"
    # Of CIFAR-100 the fine labels.
    write_cifar(tmp_path / "cifar100" / "train.bin", [(1, 99), (2, 20)], 0)
    write_cifar(tmp_path / "cifar100" / "test.bin", [(19, 50)], 1)
    fine = load_dataset("cifar100", tmp_path)
    assert (fine.train_labels.tolist(), fine.test_labels.tolist(), fine.classes) == ([99, 20], [50], 100)


def test_files_are_looked_for_in_the_folder_the_variable_and_data(tmp_path, monkeypatch) -> None:
    write_idx_folder(tmp_path / "right here")
    write_idx_folder(tmp_path / "data" / "mnist")
    monkeypatch.setenv("SHIELDFL_DATA", str(tmp_path / "right here"))
    assert len(load_dataset("mnist").train_labels) == 6
    monkeypatch.setenv("SHIELDFL_DATA", str(tmp_path / "elsewhere"))
    assert len(load_dataset("mnist", tmp_path / "right here").train_labels) == 6
    with pytest.raises(DataError, match="SHIELDFL_DATA"):
        load_dataset("mnist")
    monkeypatch.delenv("SHIELDFL_DATA")
    monkeypatch.chdir(tmp_path)
    assert len(load_dataset("mnist").train_labels) == 6


NO_IMAGES = struct.pack(">4B3I", 0, 0, 8, 3, 0, 4, 4)


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train-labels-idx1-ubyte": b"\0\0\x08\1\0\0\0\5" + b"\1" * 5}, "6 images but 5 labels"),
        (
            {"train-labels-idx1-ubyte": b"\0\0\x08\1\0\0\0\0", "train-images-idx3-ubyte": NO_IMAGES},
            "is empty",
        ),
        ({"t10k-images-idx3-ubyte": struct.pack(">4B3I", 0, 0, 8, 3, 3, 2, 2) + b"\1" * 12}, "differ"),
        ({"t10k-labels-idx1-ubyte": b"\0\0\x08\1\0\0\0\3\0\0\x0a"}, r"position 2: labels must lie in 0\.\.9"),
        ({"t10k-images-idx3-ubyte": NO_IMAGES + b"\0"}, "longer than its header says"),
    ],
)
def test_files_that_do_not_fit_are_refused(tmp_path: Path, files: dict[str, bytes], message: str) -> None:
    write_idx_folder(tmp_path)
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_dataset("mnist", tmp_path)


@pytest.mark.parametrize("name", [name for name in DATASETS if name != "digits"])
def test_missing_folders_say_what_to_set_and_missing_files_are_named(tmp_path: Path, name: str) -> None:
    for root in (tmp_path, tmp_path / "absent"):
        with pytest.raises(DataError, match=f"{name}.*SHIELDFL_DATA"):
            load_dataset(name, root)
    with pytest.raises(ParameterError, match=", ".join(DATASETS)):
        load_dataset("imagenet")
    for missing in IDX_FILES if "mnist" in name else ():
        write_idx_folder(tmp_path / name)
        (tmp_path / name / missing).unlink()
        with pytest.raises(DataError, match=missing):
            load_dataset(name, tmp_path)


def test_real_mnist(data_dir: Path) -> None:
    if not (data_dir / "mnist").is_dir():
        pytest.skip(f"{data_dir} holds no mnist folder")
    mnist = load_dataset("mnist", data_dir)
    assert mnist.description == "MNIST (60,000 train / 10,000 test)"
    # The published class counts.
    assert torch.bincount(mnist.train_labels).tolist() == [
        5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949
    ]  # fmt: skip
    assert mnist.train_labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert mnist.feature_shape == (1, 28, 28)
    # The constants are those of this very set.
    assert abs(float(mnist.train_features.mean())) < 1e-3
    assert float(mnist.train_features.std()) == pytest.approx(1.0, abs=1e-3)


def test_idx_cut_anywhere_is_refused(tmp_path: Path) -> None:
    content = idx_bytes(np.ones((2, 3, 4)))
    path = tmp_path / "file"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"truncated|not an IDX file"):
            read_idx(path, 3)
    giant = struct.pack(">4B3I", 0, 0, 8, 3, *(2**32 - 1,) * 3) + b"\1" * 100  # not allocated
    for other, words in (
        (content + b"\0", "longer than its header says"),
        (giant, "truncated"),
        (b"\0\0\x0d\x03" + content[4:], "not an IDX file"),
    ):
        path.write_bytes(other)
        with pytest.raises(DataError, match=words):
            read_idx(path, 3)
    for unreadable in (tmp_path / "absent", tmp_path / "absent.gz", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            read_idx(unreadable, 1)


def test_damaged_compression_is_refused(tmp_path: Path) -> None:
    content = gzip.compress(idx_bytes(np.random.default_rng(0).integers(0, 256, (40, 8, 8))))
    path = tmp_path / "file.gz"
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 0xFF
    for damaged in (content[: len(content) // 2], content[:-4], bytes(flipped), b"plain bytes", b"\x1f\x8b"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"file\.gz is truncated or damaged"):
            read_idx(path, 3)


@pytest.mark.parametrize("length", [0, 1, 3072, 3074, 2 * 3073 - 1])
def test_cifar_of_no_whole_number_of_records_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(b"\1" * length)
    with pytest.raises(DataError, match="3073-byte records"):
        read_cifar([path], 1)


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
        *((10, 2, alpha, "alpha must be above 0") for alpha in (0, -1, math.nan)),
    ],
)
def test_impossible_requests_are_refused(samples: int, clients: int, alpha: float, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        dirichlet_partition(balanced_labels(samples), clients, alpha, 0)
    for deal in (dirichlet_partition, grouped_partition):
        with pytest.raises(ParameterError, match="labels must be one for each sample"):
            deal(np.zeros((10, 2)), 2, 1, 0)


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
