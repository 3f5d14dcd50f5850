"""The arrays of a model by their names: NumPy's and torch's, in dicts of whatever depth or in a module."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ArrayTypeError, ParameterError

__all__ = [
    "array_of",
    "as_like",
    "dtype_of",
    "is_float",
    "is_frozen",
    "is_module",
    "memory_of",
    "named_leaves",
]

FLOATS = ("float32", "float64", "float16", "bfloat16")
_OTHER_FLOATS = ("float", "complex")


def named_leaves(model: Any) -> dict[str, Any]:
    """Return a model's arrays by name, in its order; names of a nested dict's are joined by dots.

    Of a module they are what its state dict has, and each parameter knows whether it is frozen. Raises ParameterError
    for a name that comes twice or is no text; ArrayTypeError for what is no array, which it names.
    """
    if is_module(model):
        # Under all names, of tensors that are shared too, as a state dict has them.
        return dict(model.state_dict(keep_vars=True))
    if not isinstance(model, Mapping):
        raise ArrayTypeError(
            f"a model is a dict of arrays, or of such dicts, or a torch module, not {type(model).__name__}: pass "
            "model.state_dict(), dict(model.named_parameters()) or a dict of your arrays"
        )
    found: dict[str, Any] = {}
    for name, value in _walked(model, ""):
        if name in found:
            raise ParameterError(f"two arrays of the model are called {name!r}: rename one")
        found[name] = value
    return found


def _walked(tree: Mapping[Any, Any], head: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if not isinstance(key, str):
            raise ParameterError(f"names of a model's arrays are texts, and {head}{key!r} is not: rename it")
        if isinstance(value, Mapping):
            yield from _walked(value, f"{head}{key}.")
        elif isinstance(value, np.ndarray) or _is_tensor(value):
            yield head + key, value
        else:
            raise ArrayTypeError(
                f"{head + key!r} is a {type(value).__name__}, and neither a NumPy array nor a torch tensor: convert "
                "it, or leave it out of what you pass"
            )


def is_module(model: Any) -> bool:
    """Say whether it is a torch module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_frozen(leaf: Any) -> bool:
    """Say whether it is a parameter that is not trained."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(leaf, torch.nn.Parameter) and not leaf.requires_grad


def dtype_of(leaf: Any) -> str:
    """Return the name of its dtype, as NumPy and torch both write it."""
    return str(leaf.dtype).removeprefix("torch.")


def is_float(name: str, leaf: Any) -> bool:
    """Say whether it is of floats that are protected. Raises ArrayTypeError for other floats, by its name."""
    dtype = dtype_of(leaf)
    if dtype in FLOATS:
        return True
    if dtype.startswith(_OTHER_FLOATS):
        raise ArrayTypeError(f"{name!r} is of {dtype}: convert it to one of {', '.join(FLOATS)}")
    return False


def memory_of(leaf: Any) -> Hashable:
    """Return what two leaves have in common where they are the same memory, in the same order; None for none."""
    if isinstance(leaf, np.ndarray):
        return (leaf.__array_interface__["data"][0], leaf.shape, leaf.strides) if leaf.size else None
    return (str(leaf.device), leaf.data_ptr(), tuple(leaf.shape), leaf.stride()) if leaf.numel() else None


def array_of(leaf: Any) -> NDArray[Any]:
    """Return its numbers as a NumPy array, float32 or float64: its own memory where that serves."""
    if isinstance(leaf, np.ndarray):
        return leaf if dtype_of(leaf) in ("float32", "float64") else leaf.astype(np.float32)
    tensor = leaf.detach().cpu()
    found: NDArray[Any] = (tensor if dtype_of(tensor) in ("float32", "float64") else tensor.float()).numpy()
    return found


def as_like(leaf: Any, numbers: NDArray[Any]) -> Any:
    """Return numbers in a new array, or tensor, of a leaf's shape, dtype and device."""
    if isinstance(leaf, np.ndarray):
        with np.errstate(over="ignore"):  # to infinity, as torch does
            return numbers.reshape(leaf.shape).astype(leaf.dtype)
    import torch

    copied = torch.tensor(numbers.reshape(tuple(leaf.shape)))
    return copied.to(dtype=leaf.dtype, device=leaf.device)
