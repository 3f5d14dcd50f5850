"""IDX and CIFAR readers: what they return for good files, and DataError for every kind of damage."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from shieldfl.errors import DataError
from shieldfl.simulation.data_files import read_cifar, read_idx


def idx_bytes(array: np.ndarray) -> bytes:
    return (
        struct.pack(f">4B{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
    )


def cifar_bytes(labels: list[tuple[int, ...]], seed: int = 0) -> tuple[bytes, np.ndarray]:
    images = np.random.default_rng(seed).integers(0, 256, (len(labels), 3, 32, 32), dtype=np.uint8)
    return b"".join(bytes(own) + image.tobytes() for own, image in zip(labels, images, strict=True)), images


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("shape", [(7,), (4, 3, 5)])
def test_idx_round_trip(tmp_path: Path, shape: tuple[int, ...], suffix: str) -> None:
    array = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    path = tmp_path / f"file{suffix}"
    path.write_bytes(gzip.compress(idx_bytes(array)) if suffix else idx_bytes(array))
    np.testing.assert_array_equal(read_idx(path, len(shape)), array)


def test_idx_cut_anywhere_is_refused(tmp_path: Path) -> None:
    content = idx_bytes(np.ones((2, 3, 4)))
    path = tmp_path / "file"
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(DataError, match=r"truncated|not an IDX file"):
            read_idx(path, 3)
    path.write_bytes(content + b"\0")
    with pytest.raises(DataError, match="longer than its header says"):
        read_idx(path, 3)


@pytest.mark.parametrize("magic", [b"\0\0\x08\x01", b"\0\0\x0d\x03", b"\x08\0\0\x03", b"\x1f\x8b\x08\x03"])
def test_idx_with_another_magic_is_refused(tmp_path: Path, magic: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(magic + idx_bytes(np.ones((2, 3, 4)))[4:])
    with pytest.raises(DataError, match="not an IDX file"):
        read_idx(path, 3)


def test_idx_that_declares_a_giant_is_refused_without_allocating_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(struct.pack(">4B3I", 0, 0, 8, 3, *(2**32 - 1,) * 3) + b"\1" * 100)
    with pytest.raises(DataError, match="truncated"):
        read_idx(path, 3)


def test_damaged_compression_is_refused(tmp_path: Path) -> None:
    content = gzip.compress(idx_bytes(np.random.default_rng(0).integers(0, 256, (40, 8, 8))))
    path = tmp_path / "file.gz"
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 0xFF
    for damaged in (content[: len(content) // 2], content[:-4], bytes(flipped), b"plain bytes", b"\x1f\x8b"):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"file\.gz is truncated or damaged"):
            read_idx(path, 3)


def test_an_unreadable_path_is_a_data_error(tmp_path: Path) -> None:
    for path in (tmp_path / "absent", tmp_path / "absent.gz", tmp_path):
        with pytest.raises(DataError, match="cannot be read"):
            read_idx(path, 1)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_cifar_reads_files_in_the_order_given(tmp_path: Path, suffix: str) -> None:
    expected_images, expected_labels, paths = [], [], []
    for index, labels in enumerate(([(3,), (9,)], [(0,)])):
        content, images = cifar_bytes(labels, index)
        path = tmp_path / f"data_batch_{index}.bin{suffix}"
        path.write_bytes(gzip.compress(content) if suffix else content)
        expected_images.append(images)
        expected_labels += [own[0] for own in labels]
        paths.append(path)
    images, labels_read = read_cifar(paths, 1)
    np.testing.assert_array_equal(images, np.concatenate(expected_images))
    assert labels_read.tolist() == expected_labels


def test_cifar100_takes_the_fine_label(tmp_path: Path) -> None:
    content, images = cifar_bytes([(1, 77), (19, 4)])
    path = tmp_path / "train.bin"
    path.write_bytes(content)
    read_images, labels = read_cifar([path], 2)
    assert labels.tolist() == [77, 4]
    np.testing.assert_array_equal(read_images, images)


@pytest.mark.parametrize("length", [0, 1, 3072, 3074, 2 * 3073 - 1])
def test_cifar_of_no_whole_number_of_records_is_refused(tmp_path: Path, length: int) -> None:
    path = tmp_path / "train.bin"
    path.write_bytes(b"\1" * length)
    with pytest.raises(DataError, match="3073-byte records"):
        read_cifar([path], 1)
