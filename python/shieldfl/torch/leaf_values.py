"""Numbers out of a model's arrays, and back into them: NumPy's and torch's."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ArrayTypeError, ParameterError, RangeError
from shieldfl.torch.leaves import dtype_of

__all__ = [
    "array_of",
    "as_it_lies",
    "check_contiguous",
    "check_present",
    "check_writable",
    "copied",
    "copy_into",
    "piece_of",
    "same_values",
    "scale_into",
    "unscaled",
    "with_values",
]


def check_present(name: str, leaf: Any) -> None:
    """Raise ArrayTypeError for a tensor that has a shape and no values."""
    if not isinstance(leaf, np.ndarray) and leaf.is_meta:
        raise ArrayTypeError(f"{name!r} is a tensor on the device meta, without values: load the model first")


def check_writable(name: str, leaf: Any) -> None:
    """Raise ParameterError for an array whose values cannot be set one by one."""
    strides = leaf.strides if isinstance(leaf, np.ndarray) else leaf.stride()
    overlaps = any(size > 1 and not stride for size, stride in zip(leaf.shape, strides, strict=True))
    if overlaps and 0 not in leaf.shape:
        raise ParameterError(
            f"{name!r} cannot be written: several of its values are one in memory, pass a copy"
        )
    if isinstance(leaf, np.ndarray) and not leaf.flags.writeable:
        raise ParameterError(f"{name!r} cannot be written: the array is read-only, pass a copy")


def check_contiguous(name: str, leaf: Any) -> None:
    """Raise ParameterError for an array that does not lie in memory in the order of its values."""
    if not (leaf.flags.c_contiguous if isinstance(leaf, np.ndarray) else leaf.is_contiguous()):
        raise ParameterError(f"{name!r} does not lie in memory in its order: pass a contiguous array")


def piece_of(leaf: Any, start: int, stop: int) -> Any:
    """Return some of an array's values (stop - start,), in their order: its own memory where it is contiguous."""
    flat = leaf.reshape(-1) if isinstance(leaf, np.ndarray) else leaf.detach().reshape(-1)
    return flat[start:stop]


def array_of(leaf: Any) -> NDArray[Any]:
    """Return its numbers as a NumPy array, float32 or float64: its own memory where that serves."""
    dtype = np.float64 if dtype_of(leaf) == "float64" else np.float32
    if isinstance(leaf, np.ndarray):
        with np.errstate(invalid="ignore"):  # of a NaN that signals
            return np.asarray(leaf, dtype)
    tensor = leaf.detach().resolve_neg().cpu()
    found: NDArray[Any] = (tensor if dtype_of(tensor) in ("float32", "float64") else tensor.float()).numpy()
    return found


def as_it_lies(leaf: Any, dtype: Any) -> NDArray[Any] | None:
    """Return an array's own memory (n,), where it lies in its order and has the dtype; else None."""
    numbers = array_of(leaf)
    if numbers.dtype != dtype or not numbers.flags.c_contiguous or not numbers.flags.aligned:
        return None
    return numbers.reshape(-1)


def same_values(one: Any, other: Any) -> bool:
    """Say whether two arrays of floats are of one shape and equal, where NaN equals NaN."""
    return np.array_equal(array_of(one), array_of(other), equal_nan=True)


def scale_into(out: NDArray[Any], name: str, leaf: Any, since: Any, exponent: int) -> None:
    """Write an array's numbers, less those of ``since`` unless it is None, divided by 2**exponent, to a vector.

    They are subtracted in float64 where one of both is float64, and rounded to the vector's dtype afterwards. Raises
    RangeError, which names the array, where a finite number is infinite in that.
    """
    try:
        _scale_into(out, leaf, since, exponent)
    except FloatingPointError:
        raise RangeError(
            f"{name!r} has a value, or a change, that {out.dtype} cannot hold, far beyond what can be encrypted: clip "
            "it first, or leave the array out with exclude"
        ) from None


def _scale_into(out: NDArray[Any], leaf: Any, since: Any, exponent: int) -> None:
    numbers = array_of(leaf).reshape(-1)
    # NaN and infinity pass: whether they are to be encrypted, and so to be refused, is for a mask to say.
    with np.errstate(over="raise", under="ignore", invalid="ignore"):
        if since is not None and exponent:
            numbers = numbers - array_of(since).reshape(-1)
        if exponent:
            np.multiply(numbers, 2.0**-exponent, out=out, casting="same_kind")
        elif since is not None:
            np.subtract(numbers, array_of(since).reshape(-1), out=out, casting="same_kind")
        else:
            np.copyto(out, numbers, casting="same_kind")


def unscaled(values: NDArray[Any], exponent: int) -> NDArray[np.float64]:
    """Return opened values as the numbers that :func:`scale_into` divided by 2**exponent, float64."""
    with np.errstate(over="ignore"):
        numbers: NDArray[np.float64] = np.ldexp(values.astype(np.float64, copy=False), exponent)
    return numbers


def with_values(leaf: Any, numbers: NDArray[np.float64], chosen: NDArray[np.bool_] | None, adds: bool) -> Any:
    """Return a copy of an array, contiguous, of its dtype and on its device, with other numbers at some places.

    ``numbers`` (count,) go to the places that ``chosen`` (size,) has, all for None, in their order; with ``adds``
    what is there is added first, in float64. All other places stay bit for bit.
    """
    # What is too large for a narrow dtype becomes infinite, as torch does.
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(leaf, np.ndarray):
            made = np.array(leaf, order="C", subok=False)
            flat, where = made.reshape(-1), slice(None) if chosen is None else chosen
            flat[where] = flat[where].astype(np.float64) + numbers if adds else numbers
            return made
        import torch

        copied = leaf.detach().resolve_neg().clone(memory_format=torch.contiguous_format)
        places = copied.view(-1)
        which = slice(None) if chosen is None else torch.from_numpy(chosen).to(copied.device)
        if adds:
            numbers = array_of(places[which]).astype(np.float64) + numbers
        # Narrowed before it moves: some devices know no float64.
        places[which] = torch.from_numpy(numbers).to(copied.dtype).to(copied.device)
        return copied


def copied(leaf: Any) -> Any:
    """Return a copy of whatever a model holds, arrays and extra state, which shares no memory with it."""
    if hasattr(leaf, "detach"):
        import torch

        if not torch.nn.parameter.is_lazy(leaf):
            return leaf.detach().clone()
    return deepcopy(leaf)


def copy_into(target: Any, source: Any) -> None:
    """Write an array's values to another one's memory; bits stay where both are of one library and dtype."""
    if isinstance(target, np.ndarray):
        with np.errstate(over="ignore", invalid="ignore"):
            target[...] = source if isinstance(source, np.ndarray) else array_of(source)
        return
    import torch

    if isinstance(source, np.ndarray):
        source = torch.tensor(np.array(array_of(source), order="C"))
    target.data.copy_(source.detach())
