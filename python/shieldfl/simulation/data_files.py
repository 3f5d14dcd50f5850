"""Readers for the two binary formats that image data sets come in: IDX (MNIST) and CIFAR records.

Both read a file whole, plain or gzip-compressed, and check its length against what its header or record size
says before anything is interpreted. All errors are ``DataError`` and name the file.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shieldfl.errors import DataError

__all__ = ["CIFAR_SHAPE", "read_cifar", "read_idx"]

CIFAR_SHAPE = (3, 32, 32)

ByteArray = npt.NDArray[np.uint8]

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
