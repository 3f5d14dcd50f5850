"""Data sets by name, which samples of them each client gets, and synthetic samples beside them.

By name there are scikit-learn's digits, and local folders of MNIST, Fashion-MNIST, CIFAR-10, CIFAR-100.
Nothing is downloaded. Pixels are scaled to [0, 1], then normalised per channel with fixed numbers: mean and
standard deviation of the published training set, to four digits, whatever files were found. Numbers computed
from the samples at hand would tell of each of them, and no noise covers that. A seed always gives the same
partition.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from shieldfl.array_view import as_count, as_real, as_unsigned
from shieldfl.errors import DataError, ParameterError
from shieldfl.lab.simulation import DATASETS
from shieldfl.methods.registry import BUILT_IN, named_method
from shieldfl.privacy.synthetic_data import check_labelled_samples, fit_synthetic_data
from shieldfl.rounds.method import Method
from shieldfl.rounds.plan import SyntheticDemand
from shieldfl.rounds.reports import Account

__all__ = ["DATASETS", "Dataset", "load_dataset", "read_cifar", "read_idx"]


ByteArray = npt.NDArray[np.uint8]
_Samples = tuple[ByteArray, ByteArray]
"""Images (N, channels, height, width) and labels (N,), both uint8."""


@dataclass(frozen=True)
class Dataset:
    """What is learnt from, and measured on, in memory.

    Attributes
    ----------
    name : one of :data:`DATASETS`, or the name of a user's task.
    description : title and sizes; says "subset" where the files hold fewer samples than the published set.
    classes : labels are 0 to classes - 1; 0 where targets are no classes.
    train_features, test_features : float32 tensors (N, channels, height, width), normalised; of a user's
        data, float32 or int64, (N, ...).
    train_labels, test_labels : int64 tensors (N,); of a user's data, targets (N, ...), float32 or int64.
    feature_range : pair of float32 tensors (channels, 1, 1), the values of the darkest and brightest possible
        pixel: public, whatever the samples hold. None for a user's data, whose range is unknown.
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


def check_alike(
    given: tuple[torch.Tensor, torch.Tensor], features: torch.Tensor, targets: torch.Tensor, what: str
) -> None:
    """Raise ParameterError for samples with another shape or dtype than the training samples."""
    for one, other, kind in zip(given, (features, targets), ("features", "targets"), strict=True):
        if one.shape[1:] != other.shape[1:] or one.dtype != other.dtype:
            raise ParameterError(
                f"{kind} of {what} are {tuple(one.shape[1:])} of {one.dtype}, those of train_data "
                f"{tuple(other.shape[1:])} of {other.dtype}"
            )


@dataclass(frozen=True)
class _Source:
    title: str
    classes: int
    sizes: tuple[int, int]
    full_scale: int
    channels: tuple[tuple[float, float], ...]
    """Mean and standard deviation of each channel, of pixels in [0, 1]."""
    folders: tuple[str, ...]
    read: Callable[[Path], tuple[_Samples, _Samples]]
    """Function of a folder that returns the training samples and the test samples."""

    def normalised(self, images: ByteArray) -> torch.Tensor:
        """Map bytes to floats, by one table per channel; some images at a time, which stay in the cache."""
        normalised = np.empty(images.shape, dtype=np.float32)
        levels = np.arange(256) / self.full_scale
        for channel, (mean, deviation) in enumerate(self.channels):
            table = ((levels - mean) / deviation).astype(np.float32)
            for first in range(0, len(images), _AT_ONCE):
                some = slice(first, first + _AT_ONCE)
                # The table has every byte: nothing is clipped, but any other mode buffers what it writes.
                np.take(table, images[some, channel], out=normalised[some, channel], mode="clip")
        return torch.from_numpy(normalised)


def load_dataset(name: str, data_dir: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a data set by name.

    Parameters
    ----------
    name : ``digits`` (needs no files; 80 % train, 20 % test, split once and for all), ``mnist``,
        ``fashion-mnist`` (IDX files), ``cifar10`` or ``cifar100`` (binary version). Files may be plain or
        gzip-compressed.
    data_dir : folder that holds the data set's sub-folder (``mnist``, ``cifar10``, ...) or the files
        themselves; by default the environment variable ``SHIELDFL_DATA``, else ``./data``.

    Raises ParameterError for an unknown name, DataError for files that are missing, truncated or of the wrong
    format, or hold labels out of range.
    """
    if name not in DATASETS:
        raise ParameterError(f"unknown data set {name!r}: choose one of {', '.join(DATASETS)}")
    source = _SOURCES[name]
    root = Path(data_dir if data_dir is not None else os.environ.get("SHIELDFL_DATA") or "data")
    train, test = source.read(_locate(name, source, root) if source.folders else root)
    for split, (images, labels) in zip(("train", "test"), (train, test), strict=True):
        what = f"the {split} set of {name!r}"
        if not images.size:
            raise DataError(f"{what} is empty: fetch the files again")
        if len(images) != len(labels):
            raise DataError(f"{what} has {len(images)} images but {len(labels)} labels")
        wrong = np.flatnonzero(labels >= source.classes)
        if wrong.size:
            raise DataError(
                f"{what} has a label out of range at position {wrong[0]}: labels must lie in "
                f"0..{source.classes - 1}. Fetch the files again"
            )
    shapes = [images.shape[1:] for images, _ in (train, test)]
    if shapes[0] != shapes[1]:
        raise DataError(f"train and test images of {name!r} differ: {shapes[0]}, {shapes[1]}")
    sizes = len(train[1]), len(test[1])
    whole = f"({sizes[0]:,} train / {sizes[1]:,} test)"
    subset = "subset ({}/{})".format(*(f"{n // 1000}k" if n % 1000 == 0 else n for n in sizes))
    means, deviations = torch.tensor(source.channels, dtype=torch.float64).T[..., None, None]
    return Dataset(
        name,
        f"{source.title} {whole if sizes == source.sizes else subset}",
        source.classes,
        source.normalised(train[0]),
        torch.from_numpy(train[1].astype(np.int64)),
        source.normalised(test[0]),
        torch.from_numpy(test[1].astype(np.int64)),
        ((-means / deviations).float(), ((1 - means) / deviations).float()),
    )


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


def _read_mnist(folder: Path) -> tuple[_Samples, _Samples]:
    def read(split: str, kind: str, rank: int) -> ByteArray:
        # Both spellings circulate: the published name, and the one that some unpackers write.
        stems = (f"{split}-{kind}{mark}idx{rank}-ubyte" for mark in "-.")
        names = [f"{stem}{suffix}" for stem in stems for suffix in ("", ".gz")]
        for name in names:
            if (folder / name).is_file():
                return read_idx(folder / name, rank)
        raise DataError(
            f"{folder} lacks {names[0]} (or {names[0]}.gz): put the data set's four IDX files there, "
            "or set SHIELDFL_DATA to the folder that holds them"
        )

    train, test = (
        (read(split, "images", 3)[:, np.newaxis], read(split, "labels", 1)) for split in ("train", "t10k")
    )
    return train, test


def _read_cifar(folder: Path, label_bytes: int) -> tuple[_Samples, _Samples]:
    by_stem: dict[str, Path] = {}
    for path in _files(folder):
        if path.name.endswith((".bin", ".bin.gz")):
            # Sorted order puts the plain file before its compressed copy: the same samples only once.
            by_stem.setdefault(path.name.removesuffix(".gz"), path)
    test = [path for stem, path in by_stem.items() if "test" in stem]
    train = [
        path for stem, path in by_stem.items() if path not in test and ("train" in stem or "batch" in stem)
    ]
    if not train or not test:
        raise DataError(
            f"{folder} lacks CIFAR's binary files: expected data_batch_*.bin or *train*.bin, and "
            "*test*.bin (.gz allowed). Set SHIELDFL_DATA to the folder that holds them"
        )
    return read_cifar(train, label_bytes), read_cifar(test, label_bytes)


def _read_digits(_folder: Path) -> tuple[_Samples, _Samples]:
    # Imported here since scikit-learn takes a second to load and no other data set needs it.
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    digits = load_digits()
    images = digits.images.astype(np.uint8)[:, np.newaxis]
    labels = digits.target.astype(np.uint8)
    train, test, train_labels, test_labels = train_test_split(
        images, labels, test_size=0.2, random_state=0, stratify=labels
    )
    return (train, train_labels), (test, test_labels)


_AT_ONCE = 1000
_SOURCES = {
    "digits": _Source("scikit-learn digits", 10, (1437, 360), 16, ((0.3053, 0.3760),), (), _read_digits),
    "mnist": _Source(
        "MNIST", 10, (60_000, 10_000), 255, ((0.1307, 0.3081),), ("mnist", "MNIST/raw"), _read_mnist
    ),
    "fashion-mnist": _Source(
        "Fashion-MNIST",
        10,
        (60_000, 10_000),
        255,
        ((0.2860, 0.3530),),
        ("fashion-mnist", "FashionMNIST/raw"),
        _read_mnist,
    ),
    "cifar10": _Source(
        "CIFAR-10",
        10,
        (50_000, 10_000),
        255,
        ((0.4914, 0.2470), (0.4822, 0.2435), (0.4465, 0.2616)),
        ("cifar10", "cifar-10-batches-bin"),
        partial(_read_cifar, label_bytes=1),
    ),
    "cifar100": _Source(
        "CIFAR-100",
        100,
        (50_000, 10_000),
        255,
        ((0.5071, 0.2673), (0.4865, 0.2564), (0.4409, 0.2762)),
        ("cifar100", "cifar-100-binary"),
        partial(_read_cifar, label_bytes=2),
    ),
}

CIFAR_SHAPE = (3, 32, 32)
_IDX_UNSIGNED_BYTE = 0x08


def read_idx(path: Path, rank: int) -> ByteArray:
    """Read an IDX file of unsigned bytes, gzip-compressed if its name ends in ``.gz``.

    ``rank`` is the number of dimensions expected: 1 for labels, 3 for images. Returns a read-only array in
    the shape that the header states. Raises DataError if the file cannot be read, has another magic number,
    or is shorter or longer than its header says.
    """
    content = _read(path)
    header_bytes = 4 + 4 * rank
    expected_magic = bytes([0, 0, _IDX_UNSIGNED_BYTE, rank])
    if content[:4] != expected_magic:
        raise DataError(
            f"{path} is not an IDX file of unsigned bytes with {rank} dimension(s): "
            f"it starts with 0x{content[:4].hex()}, expected 0x{expected_magic.hex()}"
        )
    header = content[4:header_bytes].ljust(4 * rank, b"\0")  # a shape of zeros for a header that is cut off
    shape = struct.unpack(f">{rank}I", header)
    expected = header_bytes + math.prod(shape)
    if len(content) != expected:
        problem = "truncated" if len(content) < expected else "longer than its header says"
        raise DataError(f"{path} is {problem}: {len(content)} bytes, expected {expected}. Fetch it again")
    return np.frombuffer(content, dtype=np.uint8, offset=header_bytes).reshape(shape)


def read_cifar(paths: Sequence[Path], label_bytes: int) -> tuple[ByteArray, ByteArray]:
    """Read CIFAR binary files one after the other: images (N, 3, 32, 32) and labels (N,).

    A record is ``label_bytes`` label bytes (CIFAR-10: 1; CIFAR-100: coarse, then fine), then 3,072 bytes:
    the red, green and blue planes of 32x32. The last label byte is the one returned.

    Raises DataError if a file cannot be read, is empty, or is no whole number of records.
    """
    record_bytes = label_bytes + math.prod(CIFAR_SHAPE)
    parts = []
    for path in paths:
        content = _read(path)
        if not content or len(content) % record_bytes:
            raise DataError(
                f"{path} is truncated or has another format: {len(content)} bytes are not a whole number of "
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


IndexArray = npt.NDArray[np.int64]


def deal_out(
    labels: npt.ArrayLike, clients: int, alpha: float, seed: int, classes_per_client: int | None
) -> list[IndexArray]:
    if classes_per_client is not None:
        return grouped_partition(labels, clients, classes_per_client, seed)
    return dirichlet_partition(labels, clients, alpha, seed)


def dirichlet_partition(labels: npt.ArrayLike, clients: int, alpha: float, seed: int) -> list[IndexArray]:
    """Share samples out unevenly by class: clients' shares of a class are a draw from Dir(alpha, ..., alpha).

    SelectiveShield, section 5: a small alpha gives clients that see few classes; an infinite one deals the
    shuffled samples out evenly. A client left without any gets one from the client that has most.

    Returns one ascending int64 array of positions for each client; together they hold each of 0..N-1 once.
    Raises ParameterError for more clients than samples.
    """
    classes, clients = _classes(labels), as_count(clients, "clients")
    if not as_real(alpha, "alpha") > 0.0:
        raise ParameterError("alpha must be above 0, and math.inf for shares that are alike")
    if clients > classes.size:
        raise ParameterError(
            f"{classes.size} samples cannot give {clients} clients 1 each: use fewer clients"
        )
    generator = np.random.default_rng(as_unsigned(seed, "seed"))
    if math.isinf(alpha):
        parts = np.array_split(generator.permutation(classes.size), clients)
    else:
        pieces = [[np.empty(0, np.int64)] for _ in range(clients)]
        for label in np.unique(classes):
            members = generator.permutation(np.flatnonzero(classes == label))
            cuts = np.floor(np.cumsum(_shares(clients, alpha, generator))[:-1] * members.size)
            for own, piece in zip(pieces, np.split(members, cuts.astype(np.int64)), strict=True):
                own.append(piece)
        parts = [np.concatenate(own) for own in pieces]
        sizes = np.array([part.size for part in parts])
        for client in np.flatnonzero(sizes == 0):
            # From the largest, the first of equals.
            giver = int(sizes.argmax())
            parts[client], parts[giver] = parts[giver][-1:], parts[giver][:-1]
            sizes[giver] -= 1
    return [np.sort(part).astype(np.int64) for part in parts]


def grouped_partition(
    labels: npt.ArrayLike, clients: int, classes_per_client: int, seed: int
) -> list[IndexArray]:
    """Share samples out so that clients form groups, each with consecutive classes of its own.

    SenseCrypt's section 4.1 and appendix D: within a group data are alike, between groups no class is shared.
    There are as few groups as keep each at ``classes_per_client`` classes, or fewer where the classes do not
    divide; consecutive clients form a group, and the samples of each class are dealt out evenly within its
    group, by the seed.

    Returns positions as :func:`dirichlet_partition` does. Raises ParameterError for fewer clients than
    groups, or a client that is left without samples.
    """
    classes, clients = _classes(labels), as_count(clients, "clients")
    classes_per_client = as_count(classes_per_client, "classes_per_client")
    present = np.unique(classes)
    groups = max(1, math.ceil(present.size / classes_per_client))
    if clients < groups:
        raise ParameterError(
            f"{present.size} classes, {classes_per_client} for each client, make {groups} groups, and there "
            f"are {clients} clients: use more clients, or more classes_per_client"
        )
    generator = np.random.default_rng(as_unsigned(seed, "seed"))
    pieces = [[np.empty(0, np.int64)] for _ in range(clients)]
    members_of = np.array_split(np.arange(clients), groups)
    for own, members in zip(np.array_split(present, groups), members_of, strict=True):
        for number, label in enumerate(own):
            samples = generator.permutation(np.flatnonzero(classes == label))
            # What does not divide goes to another client with each class.
            split = np.array_split(samples, members.size)
            for client, piece in zip(np.roll(members, -number), split, strict=True):
                pieces[client].append(piece)
    parts = [np.sort(np.concatenate(own)) for own in pieces]
    empty = [client for client, part in enumerate(parts) if not part.size]
    if empty:
        raise ParameterError(
            f"{classes.size} samples leave client {empty[0]} without any: use fewer clients or more samples"
        )
    return parts


def label_shares(
    partition: Sequence[IndexArray], labels: npt.ArrayLike, classes: int
) -> npt.NDArray[np.float64]:
    """Return the share of each class in each client's data, (clients, classes); labels are 0..classes-1."""
    known = np.asarray(labels)
    counts = np.array([np.bincount(known[part], minlength=classes) for part in partition], np.float64)
    shares: npt.NDArray[np.float64] = counts / counts.sum(axis=1, keepdims=True)
    return shares


def _classes(labels: npt.ArrayLike) -> npt.NDArray[np.generic]:
    classes = np.asarray(labels)
    if classes.ndim != 1:
        raise ParameterError(f"labels must be one for each sample, not an array of rank {classes.ndim}")
    return classes


def _shares(clients: int, alpha: float, generator: np.random.Generator) -> npt.NDArray[np.float64]:
    shares: npt.NDArray[np.float64] = generator.dirichlet(np.full(clients, alpha))
    if np.isfinite(shares).all() and math.isclose(float(shares.sum()), 1.0, rel_tol=1e-6):
        return shares
    # Extreme concentrations overflow or underflow the gamma draws; these are the two limits of the
    # distribution.
    if alpha >= 1.0:
        return np.full(clients, 1.0 / clients)
    shares = np.zeros(clients)
    shares[generator.integers(clients)] = 1.0
    return shares


LabelledSamples = tuple[torch.Tensor, torch.Tensor]


def check_synthetic_samples(
    given: LabelledSamples | None, methods: Iterable[Method], dataset: Dataset, clients: int
) -> None:
    """Check the samples that a user gives, or what the methods ask to be made.

    Raises ParameterError, ArrayTypeError or DataError.
    """
    demands = [method.synthetic_demand for method in methods if method.synthetic_demand is not None]
    sizes = [demand.samples or len(dataset.train_labels) for demand in demands]
    if given is not None:
        if dataset.feature_range is None:
            check_alike(given, dataset.train_features, dataset.train_labels, "the synthetic data")
            if dataset.classes and not 0 <= int(given[1].min()) <= int(given[1].max()) < dataset.classes:
                raise DataError(f"synthetic targets must be classes below {dataset.classes}")
        else:
            check_labelled_samples(*given, dataset.feature_shape, dataset.classes)
        sizes = [len(given[1])]
    elif demands and dataset.feature_range is None:
        raise ParameterError(
            "synthetic data cannot be made from your own data, whose public range is unknown: pass some "
            "(synthetic, or synthetic_data in the configuration), or leave out the methods that train on them"
        )
    if sizes and min(sizes) < clients:
        raise ParameterError(
            f"{min(sizes)} synthetic samples are too few for {clients} clients: bring or make more"
        )
    if given is not None and not demands:
        takers = " or ".join(name for name in BUILT_IN if named_method(name).takes_synthetic)
        raise ParameterError(
            f"synthetic data are given, but no round trains on them: leave them out, or run {takers} for "
            "enough rounds, or with a synthetic_share"
        )


def fitted_samples(dataset: Dataset, demand: SyntheticDemand, fit: Callable[..., Any]) -> Any:
    """Return what ``fit``, as :func:`fit_synthetic_data`, makes of a data set's samples for a demand."""
    return fit(
        dataset.train_features,
        dataset.train_labels,
        dataset.classes,
        feature_range=dataset.feature_range,
        epsilon=demand.epsilon,
        delta=demand.delta,
        samples=demand.samples or len(dataset.train_labels),
    )


def synthetic_shares(
    method: Method, account: Account, dataset: Dataset, clients: int, seed: int, given: LabelledSamples | None
) -> list[LabelledSamples | None]:
    """Return clients' synthetic samples, charge new ones. Raises RangeError if noise hides every class."""
    demand = method.synthetic_demand
    if demand is None:
        return [None] * clients
    if given is None:
        made = fitted_samples(dataset, demand, partial(fit_synthetic_data, seed=seed))
        account.charge_release(made.noise_multiplier)
        features, labels = made.features, made.labels
    else:
        features, labels = given
        account.note_given_synthetic_data()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(seed))
    return [(features[share], labels[share]) for share in torch.tensor_split(order, clients)]


def shares_to_bytes(shares: Sequence[LabelledSamples | None]) -> bytes:
    """Encode what :func:`synthetic_shares` returned; empty for none. Data are never made the same twice."""
    held = [share for share in shares if share is not None]
    file = BytesIO()
    if held:
        features, labels = (torch.cat(tensors).numpy() for tensors in zip(*held, strict=True))
        np.savez(file, features=features, labels=labels)
    return file.getvalue()


def shares_from_bytes(data: bytes, clients: int) -> list[LabelledSamples | None]:
    if not data:
        return [None] * clients
    with np.load(BytesIO(data), allow_pickle=False) as arrays:
        features, labels = (torch.from_numpy(arrays[name]) for name in ("features", "labels"))
    return list(zip(torch.tensor_split(features, clients), torch.tensor_split(labels, clients), strict=True))
