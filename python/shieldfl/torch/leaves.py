"""The arrays of a model by their names: NumPy's and torch's, in dicts of whatever depth or in a module."""

from __future__ import annotations

import re
import sys
from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np

from shieldfl.errors import ArrayTypeError, ParameterError

__all__ = [
    "FLOATS",
    "check_frozen_are_known",
    "dtype_of",
    "is_float",
    "is_frozen",
    "is_module",
    "is_trained",
    "memory_of",
    "named_leaves",
]

FLOATS = ("float32", "float64", "float16", "bfloat16")
_WHOLE = re.compile(r"bool|u?int\d+")
_EXTRA_STATE = "_extra_state"
"""How torch calls in a state dict what ``Module.get_extra_state`` returned, which may be anything."""


def named_leaves(model: Any) -> dict[str, Any]:
    """Return a model's arrays by name, in its order; names of a nested dict's are joined by dots.

    Of a module they are what its state dict has, and each parameter knows whether it is frozen. Extra state of modules
    is among them, whatever it is. Raises ParameterError for a name that comes twice or is no text; ArrayTypeError for
    what else is no array, which it names.
    """
    if is_module(model):
        # Under all names, of tensors that are shared too, as a state dict has them.
        model = model.state_dict(keep_vars=True)
    if not isinstance(model, Mapping):
        raise ArrayTypeError(
            f"a model is a dict of arrays, or of such dicts, or a torch module, not {type(model).__name__}: pass "
            "model.state_dict(), dict(model.named_parameters()) or a dict of your arrays"
        )
    found: dict[str, Any] = {}
    try:
        for name, value in _walked(model, ""):
            if name in found:
                raise ParameterError(f"two arrays of the model are called {name!r}: rename one")
            found[name] = value
    except RecursionError:
        raise ParameterError("the model's dicts are in each other without end: take one out") from None
    return found


def _walked(tree: Mapping[Any, Any], head: str) -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if not isinstance(key, str):
            raise ParameterError(f"names of a model's arrays are texts, and {head}{key!r} is not: rename it")
        if _is_array(value) or key.rpartition(".")[2] == _EXTRA_STATE:
            yield head + key, value
        elif isinstance(value, Mapping):
            yield from _walked(value, f"{head}{key}.")
        else:
            raise ArrayTypeError(
                f"{head + key!r} is a {type(value).__name__}, and neither a NumPy array nor a torch tensor: convert "
                "it, or leave it out of what you pass"
            )


def is_module(model: Any) -> bool:
    """Say whether it is a torch module."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _is_array(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return isinstance(value, np.ndarray) or (torch is not None and isinstance(value, torch.Tensor))


def is_frozen(leaf: Any) -> bool:
    """Say whether it is a parameter that is not trained."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(leaf, torch.nn.Parameter) and not leaf.requires_grad


def is_trained(leaf: Any) -> bool:
    """Say whether it is a tensor that says of itself that it is trained."""
    return getattr(leaf, "requires_grad", False) is True


def check_frozen_are_known(leaves: Mapping[str, Any]) -> None:
    """Raise ParameterError for arrays of which nothing says whether they are frozen: a state dict's, or NumPy's."""
    torch = sys.modules.get("torch")
    for name, leaf in leaves.items():
        says = torch is not None and isinstance(leaf, torch.nn.Parameter)
        if dtype_of(leaf) in FLOATS and not says and not is_trained(leaf):
            raise ParameterError(
                f"nothing says whether {name!r} is frozen, as a state dict does not: for trainable_only pass the "
                "module, or dict(model.named_parameters())"
            )


def dtype_of(leaf: Any) -> str:
    """Return the name of its dtype, as NumPy and torch both write it, without the byte order; else that of its type."""
    if isinstance(leaf, np.ndarray):
        return str(leaf.dtype.name)
    return _name_of(leaf.dtype) if _is_array(leaf) else type(leaf).__name__


@cache
def _name_of(dtype: Any) -> str:
    """Return the name of one of torch's dtypes, which takes microseconds to write."""
    return str(dtype).removeprefix("torch.")


def is_float(name: str, leaf: Any) -> bool:
    """Say whether it is of floats that can be encrypted; integers, truth values and extra state are not.

    Raises ArrayTypeError, by its name, for every other dtype, and for floats that are no plain memory of numbers.
    """
    dtype = dtype_of(leaf)
    if not _is_array(leaf) or _WHOLE.fullmatch(dtype):
        return False
    if obstacle := _obstacle(leaf):
        raise ArrayTypeError(f"{name!r} is {obstacle}, or leave it out")
    if dtype not in FLOATS:
        raise ArrayTypeError(
            f"{name!r} is of {dtype}: convert it to one of {', '.join(FLOATS)}, or leave it out"
        )
    return True


def _obstacle(leaf: Any) -> str | None:
    """Say what an array is that is no plain memory of numbers, and what to do; None for one that is."""
    if isinstance(leaf, np.ma.MaskedArray):
        return "a masked array, whose mask would be lost: pass .filled(...) of it"
    if isinstance(leaf, np.ndarray):
        return None
    torch = sys.modules["torch"]
    # Its own dispatch is what tells tensors that are made of others, such as distributed ones, from plain subclasses.
    if type(leaf).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"a {type(leaf).__name__}, and its values are not in one plain tensor: pass such a tensor"
    if torch.nn.parameter.is_lazy(leaf):
        return "a parameter that has no shape yet: run the module once"
    if leaf.layout is not torch.strided or leaf.is_nested:
        return "a sparse or nested tensor: pass it as a dense one"
    return None


def memory_of(leaf: Any) -> Hashable:
    """Return what two leaves have in common where they are the same numbers in the same memory; None for no memory.

    What it returns is to be compared only while the leaves are there.
    """
    if not _is_array(leaf) or _obstacle(leaf):
        return None
    if isinstance(leaf, np.ndarray):
        where = (leaf.__array_interface__["data"][0], leaf.shape, leaf.strides, leaf.dtype)
        return where if leaf.size else None
    if not leaf.numel():
        return None
    # Tensors on meta have a storage, of which those that are shared have the same, and all have the address 0.
    start = (leaf.untyped_storage(), leaf.storage_offset()) if leaf.is_meta else leaf.data_ptr()
    return (str(leaf.device), start, tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.is_neg())
