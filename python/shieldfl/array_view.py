"""Arrays as the core takes them: checked, never converted, never copied."""

from __future__ import annotations

import math
import mmap
import operator
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ArrayTypeError, ParameterError, WireFormatError

FloatVector = NDArray[np.float32]
Vector = FloatVector | NDArray[np.float64]

Buffer = bytes | bytearray | memoryview
"""Types of the bytes that frames are read from."""


class Tensor(Protocol):
    """A torch tensor, as far as it can be described without torch."""

    requires_grad: bool

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any: ...

    def detach(self) -> Any:
        """Return the same values without their history."""


Update = Vector | Tensor
"""Type of an update to encrypt, for type checkers; :func:`as_update` decides what is accepted."""

Pieces = list[FloatVector] | list[NDArray[np.float64]]
"""An update as consecutive vectors, one or several, all of one dtype: the result of :func:`as_pieces`."""

_MOST_THREADS = 1024

# How a tensor becomes one of a dtype, by the dtype's name.
_TENSOR_CALLS = {"float32": ".float()", "float64": ".double()", "bool": ".bool()", "int64": ".long()"}


def as_numpy(values: Any, what: str) -> NDArray[Any]:
    """View an ndarray or a CPU tensor as an ndarray that shares its memory."""
    if isinstance(values, np.ndarray):
        return values
    if not hasattr(values, "__dlpack__"):
        raise ArrayTypeError(
            f"{what} must be a NumPy array or a CPU torch tensor, not {type(values).__name__}: "
            "convert it, for example with numpy.asarray(..., dtype=numpy.float32)"
        )
    if getattr(values, "requires_grad", False):
        raise ArrayTypeError(f"{what} is a tensor that requires grad: pass tensor.detach()")
    try:
        return np.from_dlpack(values)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise ArrayTypeError(f"{what} {_unreadable(values)}") from error


def _unreadable(tensor: Any) -> str:
    """Say why NumPy cannot view a tensor, and the call that mends it."""
    device = getattr(tensor, "device", "cpu")
    if getattr(device, "type", str(device)) != "cpu":
        return f"is a tensor on the device {device}: pass tensor.cpu()"
    if getattr(tensor, "is_sparse", False):
        return "is a sparse tensor: pass tensor.to_dense()"
    kind = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
    if kind == "bfloat16":
        return "has dtype bfloat16, which NumPy does not know: pass tensor.float()"
    return (
        f"is a tensor of dtype {kind or 'unknown'} that NumPy cannot view: pass tensor.detach().cpu().float()"
    )


def as_vector(values: Any, dtypes: tuple[type[np.generic], ...], what: str) -> NDArray[Any]:
    """Check that ``values`` is a contiguous vector of one of ``dtypes``, and view it as an ndarray.

    Raises ArrayTypeError, which says what to pass instead.
    """
    array = as_numpy(values, what)
    is_tensor = not isinstance(values, np.ndarray)
    kind = array.dtype
    # Also of another name in NumPy where it is the same: long and long long.
    known = kind.type in dtypes or kind.name in [np.dtype(dtype).name for dtype in dtypes]
    if not known or not kind.isnative:
        names = [np.dtype(dtype).name for dtype in dtypes]
        call = f"tensor{_TENSOR_CALLS[names[0]]}" if is_tensor else f"array.astype(numpy.{names[0]})"
        raise ArrayTypeError(f"{what} has dtype {kind}, expected {' or '.join(names)}: pass {call}")
    if array.ndim != 1:
        which = "tensor" if is_tensor else "array"
        raise ArrayTypeError(f"{what} has {array.ndim} dimensions, expected 1: pass {which}.reshape(-1)")
    if isinstance(array, np.ma.MaskedArray):
        raise ArrayTypeError(f"{what} is a masked array, whose mask would be lost: pass .filled(...) of it")
    if not array.flags.aligned:
        raise ArrayTypeError(f"{what} is not aligned in memory: pass .copy() of it")
    if not array.flags.c_contiguous:
        call = "tensor.contiguous()" if is_tensor else "numpy.ascontiguousarray(array)"
        raise ArrayTypeError(f"{what} is not contiguous: pass {call}")
    return array


def as_update(values: Any) -> Vector:
    """Check a model update: a contiguous float32 or float64 vector with at least one value."""
    array = as_vector(values, (np.float32, np.float64), "the update")
    if array.size == 0:
        raise ParameterError("the update has no values: pass a vector with at least one")
    return array


def as_pieces(values: Any) -> Pieces:
    """Check a model update: one vector, or a list of consecutive vectors, all of one dtype.

    Raises what :func:`as_update` raises. Positions of values count through all vectors.
    """
    if not isinstance(values, list | tuple):
        only: list[Any] = [as_update(values)]
        return only
    pieces = [
        as_vector(piece, (np.float32, np.float64), f"piece {number} of the update")
        for number, piece in enumerate(values)
    ]
    if len({piece.dtype for piece in pieces}) > 1:
        raise ArrayTypeError(
            "the pieces of the update have several dtypes: make them all float32, or all float64"
        )
    if not any(piece.size for piece in pieces):
        raise ParameterError("the update has no values: pass at least one")
    return pieces


def address_of(array: NDArray[Any]) -> int:
    """Return the address of the first value.

    Contiguous arrays of one address, dtype and size are the same.
    """
    return int(array.__array_interface__["data"][0])


def as_unsigned(value: Any, what: str, bits: int = 64, least: int = 0) -> int:
    """Check a whole number from ``least`` to 2**bits - 1 and return it as an int."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ParameterError(f"{what} must be a whole number, not {type(value).__name__}") from None
    if number < least:
        raise ParameterError(f"{what} must be at least {least}, not {number}")
    if number >= 1 << bits:
        raise ParameterError(f"{what} must be below 2^{bits}")
    return number


def as_bytes(value: Any, length: int, what: str) -> bytes:
    """Check that ``value`` is so many bytes. Raises ParameterError."""
    if not isinstance(value, bytes) or len(value) != length:
        raise ParameterError(f"{what} must be {length} bytes")
    return value


def as_count(value: Any, what: str, least: int = 1) -> int:
    """Check a whole number that is not below ``least`` and return it as an int."""
    return as_unsigned(value, what, least=least)


def as_real(value: Any, what: str) -> float:
    """Check a real number and return it as a float; the callee checks its range."""
    try:
        # A text or a truth value where a number belongs is a mistake, though float() takes it.
        if not isinstance(value, (str, bytes, bool)):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ParameterError(f"{what} must be a number, not {type(value).__name__}")


def as_pair(values: Any, what: str) -> tuple[float, float]:
    """Check two real numbers and return them as floats; see :func:`as_real`."""
    try:
        first, second = values
    except (TypeError, ValueError):
        raise ParameterError(f"{what} must be two numbers") from None
    return as_real(first, f"each of {what}"), as_real(second, f"each of {what}")


def as_positive(value: Any, what: str) -> float:
    """Check a number above 0 that is finite and return it as a float."""
    number = as_real(value, what)
    if not 0.0 < number < math.inf:
        raise ParameterError(f"{what} must be positive and finite")
    return number


def as_frame(data: Any) -> bytes | memoryview:
    """Return the bytes of a frame, a copy unless nobody can change them while the core reads them."""
    if isinstance(data, bytes):
        return data
    if not isinstance(data, (bytearray, memoryview)):
        raise WireFormatError(f"expected the bytes of a frame, got {type(data).__name__}")
    if isinstance(data, memoryview) and isinstance(data.obj, bytes):
        frame_buffer(data)
        return data
    return bytes(data)


def frame_buffer(data: Any) -> Buffer | mmap.mmap:
    """Check that ``data`` is flat bytes of any kind, and return it as it is, without a copy."""
    if isinstance(data, memoryview) and (not data.c_contiguous or data.ndim != 1 or data.itemsize != 1):
        raise WireFormatError("expected flat contiguous bytes: pass memoryview(...).cast('B')")
    if not isinstance(data, (bytes, bytearray, memoryview, mmap.mmap)):
        raise WireFormatError(
            f"expected the bytes of a frame, got {type(data).__name__}: pass a pathlib.Path for a file"
        )
    return data


@contextmanager
def mapped_frame(path: os.PathLike[str]) -> Iterator[Buffer | mmap.mmap]:
    """Map a file into memory, read-only. Raises OSError."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:  # which cannot be mapped
            yield b""
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            yield mapped


def as_threads(threads: int | None) -> int:
    """Check a number of threads and return the core's argument.

    None becomes 0, with which the work decides.
    """
    if threads is None:
        return 0
    number = as_count(threads, "threads")
    if number > _MOST_THREADS:
        raise ParameterError(
            f"threads must be at most {_MOST_THREADS}, or None for as many as the work is worth"
        )
    return number
