"""Labelled samples that stand in for a client's own, and the checks on those that a user brings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray

from shieldfl.errors import ArrayTypeError, DataError, ParameterError

__all__ = ["SyntheticData", "check_labelled_samples", "load_labelled_samples"]


@dataclass(frozen=True)
class SyntheticData:
    """Synthetic samples and what the real ones paid for them.

    Attributes
    ----------
    features : float32 tensor, shape (N, ...)
        Samples of the shape of the real ones.
    labels : int64 tensor, shape (N,)
        Class of each sample.
    epsilon, delta : float
        The one release that they were made from is (ε, δ)-private; whatever is done with them costs no more.
        ε of training on the real data comes on top.
    noise_multiplier : float
        The same cost for an accountant: one step with this multiplier at a sample rate of 1.
    """

    features: torch.Tensor
    labels: torch.Tensor
    epsilon: float
    delta: float
    noise_multiplier: float


def check_labelled_samples(
    features: torch.Tensor, labels: torch.Tensor, shape: tuple[int, ...], classes: int
) -> None:
    """Check that samples can be trained on by a model for ``shape`` and ``classes``.

    Parameters
    ----------
    features : float32 tensor, shape (N, *shape)
        At least one sample.
    labels : int64 tensor, shape (N,)
        In 0 to ``classes`` - 1.
    shape : tuple of int
        Shape of one sample that the model takes.
    classes : int
        Number of classes, at least 1.

    Raises
    ------
    ArrayTypeError
        If a dtype differs.
    ParameterError
        If a shape differs, or there is no sample.
    DataError
        If a feature is NaN or infinite, or a label is out of range.
    """
    if features.dtype != torch.float32 or labels.dtype != torch.int64:
        raise ArrayTypeError(
            f"expected float32 features and int64 labels, got {features.dtype} and {labels.dtype}"
        )
    if classes < 1:
        raise ParameterError(f"a data set needs at least 1 class, got {classes}")
    if len(features.shape) == 0 or tuple(features.shape[1:]) != tuple(shape):
        raise ParameterError(
            f"samples must have the shape (N, {', '.join(map(str, shape))}), got {tuple(features.shape)}"
        )
    if len(features) == 0 or tuple(labels.shape) != (len(features),):
        raise ParameterError(
            f"expected at least 1 sample and a label for each, got {len(features)} samples and labels of shape "
            f"{tuple(labels.shape)}"
        )
    if not bool(torch.isfinite(features).all()):
        raise DataError("the features hold NaN or infinity: clean the data set")
    if int(labels.min()) < 0 or int(labels.max()) >= classes:
        raise DataError(f"labels must lie in 0 to {classes - 1}: renumber the classes of the data set")


def load_labelled_samples(path: str | Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Read samples from a NumPy archive with the arrays ``features`` (float32) and ``labels`` (whole numbers).

    Nothing in the file is executed: arrays of Python objects are refused. Whether the samples fit a model is for
    :func:`check_labelled_samples` to say.

    Parameters
    ----------
    path : str or Path
        An ``.npz`` file, compressed or not, as ``numpy.savez`` writes it.

    Returns
    -------
    features : float32 tensor, shape (N, ...)
    labels : int64 tensor, shape (N,)

    Raises
    ------
    DataError
        If the file cannot be read, is damaged, is too large for the memory, is no ``.npz`` file, or lacks one of the
        arrays.
    ArrayTypeError
        If an array has another dtype.
    """
    try:
        file = open(path, "rb")  # noqa: SIM115 - closed below, where errors mean something else
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    with file:
        arrays = _read_arrays(file, path)
    missing = {"features", "labels"} - arrays.keys()
    if missing:
        raise DataError(
            f"{path} lacks the array {min(missing)!r}: write it with numpy.savez(file, features=, labels=)"
        )
    features, labels = arrays["features"], arrays["labels"]
    if features.dtype != np.float32 or labels.dtype.kind not in "iu":
        raise ArrayTypeError(
            f"{path} holds {features.dtype} features and {labels.dtype} labels: write float32 and whole numbers"
        )
    # Labels above int64 become negative, and so stay out of range.
    return torch.from_numpy(features), torch.from_numpy(labels.astype(np.int64))


def _read_arrays(file: BinaryIO, path: str | Path) -> dict[str, NDArray[Any]]:
    try:
        archive = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            return {}
        with archive:
            return {name: archive[name] for name in ("features", "labels") if name in archive}
    except MemoryError as error:
        raise DataError(f"{path} is damaged, or needs more memory than there is") from error
    # Headers are parsed as Python: besides NumPy's and zipfile's errors that raises those of the tokenizer, the
    # compiler and of arithmetic.
    except Exception as error:
        raise DataError(f"{path} cannot be read: it is damaged, or no .npz file of plain arrays") from error
