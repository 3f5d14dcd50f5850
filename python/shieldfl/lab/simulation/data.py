"""Data sets by name: scikit-learn's digits, and local folders of MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100.

Nothing is downloaded. Pixels are scaled to [0, 1], then normalised per channel with fixed numbers: mean and standard
deviation of the published training set, to four digits, whatever files were found. What is computed from the samples
at hand would tell of each of them, and no noise covers it.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.simulation import DATASETS

__all__ = [
    "DATASETS",
    "Dataset",
    "is_whole",
    "load_dataset",
    "read_cifar",
    "read_idx",
]

ByteArray = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Dataset:
    """What is learnt from, and measured on, in memory.

    Attributes
    ----------
    name : str
        One of :data:`DATASETS`, or the user's.
    description : str
        Title and sizes; says "subset" where the files hold fewer samples than the published set.
    classes : int
        Number of classes; labels are 0 to classes - 1. 0 where targets are no classes.
    train_features, test_features : float32 tensor, shape (N, channels, height, width)
        Normalised images; of a user's data, float32 or int64, shape (N, ...).
    train_labels, test_labels : int64 tensor, shape (N,)
        Class of each sample; of a user's data, targets of any shape (N, ...), float32 or int64.
    feature_range : pair of float32 tensors, shape (channels, 1, 1), or None
        What the darkest and the brightest pixel there can be become: public, whatever the samples hold. None where
        nobody has said so of a user's data.
    """

    name: str
    description: str
    classes: int
    train_features: torch.Tensor
    train_labels: torch.Tensor
    test_features: torch.Tensor
    test_labels: torch.Tensor
    feature_range: tuple[torch.Tensor, torch.Tensor] | None

    @property
    def feature_shape(self) -> tuple[int, ...]:
        """Shape of one sample."""
        return tuple(self.train_features.shape[1:])


@dataclass(frozen=True)
class _Images:
    train: ByteArray
    train_labels: ByteArray
    test: ByteArray
    test_labels: ByteArray


@dataclass(frozen=True)
class _Source:
    title: str
    classes: int
    sizes: tuple[int, int]
    full_scale: int
    channels: tuple[tuple[float, float], ...]
    """Mean and standard deviation of each."""
    folders: tuple[str, ...]
    read: Callable[[Path], _Images]


def load_dataset(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set by name.

    Parameters
    ----------
    name : str
        ``digits`` (needs no files; 80 % train, 20 % test, split once and for all), ``mnist``,
        ``fashion-mnist`` (IDX files), ``cifar10`` or ``cifar100`` (binary version). Files may be plain or
        gzip-compressed.
    data_dir : path, optional
        Folder that holds the data set's sub-folder (``mnist``, ``cifar10``, ...) or the files themselves.
        Default: the environment variable ``SHIELDFL_DATA``, else ``./data``.

    Raises
    ------
    ParameterError
        For an unknown name.
    DataError
        If files are missing, truncated, of the wrong format, or hold labels out of range.
    """
    if name not in DATASETS:
        raise ParameterError(f"unknown data set {name!r}: choose one of {', '.join(DATASETS)}")
    source = _SOURCES[name]
    root = Path(data_dir if data_dir is not None else os.environ.get("SHIELDFL_DATA") or "data")
    images = source.read(_locate(name, source, root) if source.folders else root)
    _check(name, source, images)
    train, test = (_normalise(part, source) for part in (images.train, images.test))
    return Dataset(
        name=name,
        description=_describe(source, len(train), len(test)),
        classes=source.classes,
        train_features=torch.from_numpy(train),
        train_labels=torch.from_numpy(images.train_labels.astype(np.int64)),
        test_features=torch.from_numpy(test),
        test_labels=torch.from_numpy(images.test_labels.astype(np.int64)),
        feature_range=_normalised_range(source),
    )


def is_whole(dataset: Dataset) -> bool:
    """Say whether a data set by name has all the samples that were published, and is no subset; no user's own is."""
    source = _SOURCES.get(dataset.name)
    sizes = len(dataset.train_labels), len(dataset.test_labels)
    return source is not None and sizes == source.sizes


def _locate(name: str, source: _Source, root: Path) -> Path:
    for folder in (*(root / sub for sub in source.folders), root):
        if folder.is_dir() and any(
            "train" in entry.name or "batch" in entry.name for entry in _files(folder)
        ):
            return folder
    raise DataError(
        f"no files of {name!r} under {root.absolute()}: expected the folder {root / source.folders[0]}. "
        "Set SHIELDFL_DATA (or --data-dir) to the folder that holds it"
    )


def _files(folder: Path) -> list[Path]:
    try:
        return sorted(entry for entry in folder.iterdir() if entry.is_file())
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror or error}") from error


def _one_of(folder: Path, stems: Iterable[str]) -> Path:
    names = [f"{stem}{suffix}" for stem in stems for suffix in ("", ".gz")]
    for name in names:
        if (folder / name).is_file():
            return folder / name
    raise DataError(
        f"{folder} lacks {names[0]} (or {names[0]}.gz): put the data set's four IDX files there, "
        "or set SHIELDFL_DATA to the folder that holds them"
    )


def _read_mnist(folder: Path) -> _Images:
    def read(split: str, kind: str, rank: int) -> ByteArray:
        # Both spellings circulate: the published name, and the one that some unpackers write.
        return read_idx(
            _one_of(folder, (f"{split}-{kind}-idx{rank}-ubyte", f"{split}-{kind}.idx{rank}-ubyte")), rank
        )

    return _Images(
        read("train", "images", 3)[:, np.newaxis],
        read("train", "labels", 1),
        read("t10k", "images", 3)[:, np.newaxis],
        read("t10k", "labels", 1),
    )


def _read_cifar(label_bytes: int) -> Callable[[Path], _Images]:
    def read(folder: Path) -> _Images:
        by_stem: dict[str, Path] = {}
        for path in _files(folder):
            if path.name.endswith((".bin", ".bin.gz")):
                # Sorted order puts the plain file before its compressed copy: the same samples only once.
                by_stem.setdefault(path.name.removesuffix(".gz"), path)
        test = [path for stem, path in by_stem.items() if "test" in stem]
        train = [
            path
            for stem, path in by_stem.items()
            if "test" not in stem and ("train" in stem or "batch" in stem)
        ]
        if not train or not test:
            raise DataError(
                f"{folder} lacks CIFAR's binary files: expected data_batch_*.bin or *train*.bin, and "
                "*test*.bin (.gz allowed). Set SHIELDFL_DATA to the folder that holds them"
            )
        return _Images(*read_cifar(train, label_bytes), *read_cifar(test, label_bytes))

    return read


def _read_digits(_folder: Path) -> _Images:
    # Imported here since scikit-learn takes a second to load and no other data set needs it.
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = digits.images.astype(np.uint8)[:, np.newaxis]
    labels = digits.target.astype(np.uint8)
    train, test, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.2, random_state=0, stratify=labels
    )
    return _Images(train, train_labels, test, test_labels)


def _check(name: str, source: _Source, images: _Images) -> None:
    splits = {"train": (images.train, images.train_labels), "test": (images.test, images.test_labels)}
    for split, (features, labels) in splits.items():
        if len(features) == 0:
            raise DataError(f"the {split} set of {name!r} is empty: fetch the files again")
        if len(features) != len(labels):
            raise DataError(
                f"the {split} set of {name!r} has {len(features)} images but {len(labels)} labels"
            )
        wrong = np.flatnonzero(labels >= source.classes)
        if wrong.size:
            raise DataError(
                f"the {split} set of {name!r} has a label out of range at position {wrong[0]}: "
                f"labels must lie in 0..{source.classes - 1}. Fetch the files again"
            )
    if min(images.train.shape[1:]) < 1:
        raise DataError(f"the images of {name!r} have no pixels: fetch the files again")
    if images.train.shape[1:] != images.test.shape[1:]:
        raise DataError(
            f"train and test images of {name!r} differ: {images.train.shape[1:]}, {images.test.shape[1:]}"
        )


def _normalise(images: ByteArray, source: _Source) -> npt.NDArray[np.float32]:
    """Map bytes to normalised floats, by one table per channel; some images at a time, which stay in the cache."""
    normalised = np.empty(images.shape, dtype=np.float32)
    levels = np.arange(256) / source.full_scale
    for channel, (mean, deviation) in enumerate(source.channels):
        table = ((levels - mean) / deviation).astype(np.float32)
        for first in range(0, len(images), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            # The table is of all bytes, so that nothing is clipped: but any other mode would buffer what it writes.
            np.take(table, images[some, channel], out=normalised[some, channel], mode="clip")
    return normalised


def _normalised_range(source: _Source) -> tuple[torch.Tensor, torch.Tensor]:
    means, deviations = torch.tensor(source.channels, dtype=torch.float64).T[..., None, None]
    return (-means / deviations).float(), ((1 - means) / deviations).float()


def _describe(source: _Source, train: int, test: int) -> str:
    if (train, test) == source.sizes:
        return f"{source.title} ({train:,} train / {test:,} test)"
    return f"{source.title} subset ({_short(train)}/{_short(test)})"


def _short(count: int) -> str:
    return f"{count // 1000}k" if count >= 1000 and count % 1000 == 0 else str(count)


_AT_ONCE = 1000
_BYTE_SCALE = 255
_DIGITS_SCALE = 16

_SOURCES = {
    "digits": _Source(
        "scikit-learn digits", 10, (1437, 360), _DIGITS_SCALE, ((0.3053, 0.3760),), (), _read_digits
    ),
    "mnist": _Source(
        "MNIST", 10, (60_000, 10_000), _BYTE_SCALE, ((0.1307, 0.3081),), ("mnist", "MNIST/raw"), _read_mnist
    ),
    "fashion-mnist": _Source(
        "Fashion-MNIST",
        10,
        (60_000, 10_000),
        _BYTE_SCALE,
        ((0.2860, 0.3530),),
        ("fashion-mnist", "FashionMNIST/raw"),
        _read_mnist,
    ),
    "cifar10": _Source(
        "CIFAR-10",
        10,
        (50_000, 10_000),
        _BYTE_SCALE,
        ((0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616)),
        ("cifar10", "cifar-10-batches-bin"),
        _read_cifar(1),
    ),
    "cifar100": _Source(
        "CIFAR-100",
        100,
        (50_000, 10_000),
        _BYTE_SCALE,
        ((0.5071, 0.2673), (0.4865, 0.2564), (0.4409, 0.2762)),
        ("cifar100", "cifar-100-binary"),
        _read_cifar(2),
    ),
}

CIFAR_SHAPE = (3, 32, 32)


_IDX_UNSIGNED_BYTE = 0x08


def read_idx(path: Path, rank: int) -> ByteArray:
    """Read an IDX file of unsigned bytes.

    Parameters
    ----------
    path : Path
        File, gzip-compressed if its name ends in ``.gz``.
    rank : int
        Number of dimensions expected: 1 for labels, 3 for images.

    Returns
    -------
    ndarray of uint8
        Read-only, in the shape that the header states.

    Raises
    ------
    DataError
        If the file cannot be read, has another magic number, or is shorter or longer than its header says.
    """
    content = _read(path)
    header_bytes = 4 + 4 * rank
    expected_magic = bytes([0, 0, _IDX_UNSIGNED_BYTE, rank])
    if content[:4] != expected_magic:
        raise DataError(
            f"{path} is not an IDX file of unsigned bytes with {rank} dimension(s): "
            f"it starts with 0x{content[:4].hex()}, expected 0x{expected_magic.hex()}"
        )
    if len(content) < header_bytes:
        raise DataError(f"{path} is truncated: {len(content)} bytes, its header alone takes {header_bytes}")
    shape = struct.unpack(f">{rank}I", content[4:header_bytes])
    _require_length(path, len(content), header_bytes + math.prod(shape))
    return np.frombuffer(content, dtype=np.uint8, offset=header_bytes).reshape(shape)


def read_cifar(paths: Sequence[Path], label_bytes: int) -> tuple[ByteArray, ByteArray]:
    """Read CIFAR binary files one after the other.

    A record is ``label_bytes`` label bytes (CIFAR-10: 1; CIFAR-100: coarse, then fine), then 3,072 bytes:
    the red, green and blue planes of 32x32. The last label byte is the one returned.

    Returns
    -------
    images : ndarray of uint8, shape (N, 3, 32, 32)
    labels : ndarray of uint8, shape (N,)

    Raises
    ------
    DataError
        If a file cannot be read, is empty, or is no whole number of records.
    """
    record_bytes = label_bytes + math.prod(CIFAR_SHAPE)
    parts = []
    for path in paths:
        content = _read(path)
        if not content or len(content) % record_bytes:
            raise DataError(
                f"{path} is truncated or of another format: {len(content)} bytes are not a whole number of "
                f"{record_bytes}-byte records"
            )
        parts.append(np.frombuffer(content, dtype=np.uint8).reshape(-1, record_bytes))
    records = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return records[:, label_bytes:].reshape(-1, *CIFAR_SHAPE), records[:, label_bytes - 1]


def _read(path: Path) -> bytes:
    try:
        if path.suffix != ".gz":
            return path.read_bytes()
        with gzip.open(path) as file:
            return file.read()
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(
            f"{path} is truncated or damaged: it cannot be decompressed. Fetch it again"
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _require_length(path: Path, actual: int, expected: int) -> None:
    if actual != expected:
        problem = "truncated" if actual < expected else "longer than its header says"
        raise DataError(f"{path} is {problem}: {actual} bytes, expected {expected}. Fetch it again")
