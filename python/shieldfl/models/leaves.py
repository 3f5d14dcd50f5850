"""A model's arrays by their names, NumPy's and torch's, in nested dicts or a module, and their numbers."""

from __future__ import annotations

import re
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping
from copy import deepcopy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ArrayTypeError, ParameterError, RangeError

FLOATS = ("float32", "float64", "float16", "bfloat16")
_WHOLE = re.compile(r"bool|u?int\d+")
_EXTRA_STATE = "_extra_state"
"""Last part of a state dict's name for what ``Module.get_extra_state`` returned, which may be anything."""


def named_leaves(model: Any) -> dict[str, Any]:
    """Return a model's arrays by name, in its order; names of a nested dict's are joined by dots.

    Extra state of modules is among them, whatever it is. Raises ParameterError for a name that comes twice or
    is no text; ArrayTypeError, which names it, for anything else that is no array.
    """
    if is_module(model):
        # Under all names, of tensors that are shared too, as a state dict has them.
        model = model.state_dict(keep_vars=True)
    if not isinstance(model, Mapping):
        raise ArrayTypeError(
            f"a model is a dict of arrays, or of such dicts, or a torch module, not {type(model).__name__}: "
            "pass model.state_dict(), dict(model.named_parameters()) or a dict of your arrays"
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
                f"{head + key!r} is a {type(value).__name__}, and neither a NumPy array nor a torch tensor: "
                "convert it, or leave it out of what you pass"
            )


def is_module(model: Any) -> bool:
    return "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module)


def _is_array(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return isinstance(value, np.ndarray if torch is None else (np.ndarray, torch.Tensor))


def is_frozen(leaf: Any) -> bool | None:
    """Say whether an array is not trained; None if nothing says so."""
    if getattr(leaf, "requires_grad", False) is True:
        return False
    torch = sys.modules.get("torch")
    return True if torch is not None and isinstance(leaf, torch.nn.Parameter) else None


def check_frozen_are_known(leaves: Mapping[str, Any]) -> None:
    for name, leaf in leaves.items():
        if dtype_of(leaf) in FLOATS and is_frozen(leaf) is None:
            raise ParameterError(
                f"nothing says whether {name!r} is frozen, as a state dict does not: for trainable_only pass "
                "the module, or dict(model.named_parameters())"
            )


def dtype_of(leaf: Any) -> str:
    """Return the name of an array's dtype, as NumPy and torch both write it, without the byte order.

    Of anything else, return the name of its type.
    """
    if isinstance(leaf, np.ndarray):
        return str(leaf.dtype.name)
    return str(leaf.dtype).removeprefix("torch.") if _is_array(leaf) else type(leaf).__name__


def is_float(name: str, leaf: Any) -> bool:
    """Say whether it is of floats that can be encrypted; ArrayTypeError, by its name, for other dtypes."""
    dtype = dtype_of(leaf)
    if not _is_array(leaf) or _WHOLE.fullmatch(dtype):
        return False
    unknown = None if dtype in FLOATS else f"of {dtype}: convert it to one of {', '.join(FLOATS)}"
    if obstacle := _obstacle(leaf) or unknown:
        raise ArrayTypeError(f"{name!r} is {obstacle}, or leave it out")
    return True


def _obstacle(leaf: Any) -> str | None:
    """Say what an array is that is no plain memory of numbers, and what to do; None for one that is."""
    if isinstance(leaf, np.ma.MaskedArray):
        return "a masked array, whose mask would be lost: pass .filled(...) of it"
    if isinstance(leaf, np.ndarray):
        return None
    torch = sys.modules["torch"]
    # Its own dispatch is what tells tensors that are made of others, such as distributed ones, from plain
    # subclasses.
    if type(leaf).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"a {type(leaf).__name__}, and its values are not in one plain tensor: pass such a tensor"
    if torch.nn.parameter.is_lazy(leaf):
        return "a parameter that has no shape yet: run the module once"
    if leaf.layout is not torch.strided or leaf.is_nested:
        return "a sparse or nested tensor: pass it as a dense one"
    return None


def memory_of(leaf: Any) -> Hashable:
    """Return a key that leaves share if they are the same numbers in the same memory; None without."""
    if not _is_array(leaf) or _obstacle(leaf):
        return None
    if 0 in leaf.shape:
        return None
    if isinstance(leaf, np.ndarray):
        return leaf.__array_interface__["data"][0], leaf.shape, leaf.strides, leaf.dtype
    # Tensors on meta have a storage, the same for shared ones; all of them have the address 0.
    start = (leaf.untyped_storage(), leaf.storage_offset()) if leaf.is_meta else leaf.data_ptr()
    return (str(leaf.device), start, tuple(leaf.shape), leaf.stride(), leaf.dtype, leaf.is_neg())


def check_writable(name: str, leaf: Any) -> None:
    strides = leaf.strides if isinstance(leaf, np.ndarray) else leaf.stride()
    overlaps = any(size > 1 and not stride for size, stride in zip(leaf.shape, strides, strict=True))
    if overlaps and 0 not in leaf.shape:
        raise ParameterError(f"{name!r} cannot be written: values of it are one in memory, pass a copy")
    if isinstance(leaf, np.ndarray) and not leaf.flags.writeable:
        raise ParameterError(f"{name!r} cannot be written: the array is read-only, pass a copy")


def check_contiguous(name: str, leaf: Any) -> None:
    if not (leaf.flags.c_contiguous if isinstance(leaf, np.ndarray) else leaf.is_contiguous()):
        raise ParameterError(f"{name!r} does not lie in memory in its order: pass a contiguous array")


def piece_of(leaf: Any, part: slice) -> Any:
    """Return some of an array's values, in their order: its own memory where it is contiguous."""
    return (leaf if isinstance(leaf, np.ndarray) else leaf.detach()).reshape(-1)[part]


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
    return np.array_equal(array_of(one), array_of(other), equal_nan=True)


def scale_into(out: NDArray[Any], name: str, leaf: Any, since: Any, exponent: int) -> None:
    """Write an array's numbers, less those of ``since`` if not None, divided by 2**exponent, to a vector.

    They are subtracted in float64 where one of both is float64, and rounded to the vector's dtype afterwards.
    Raises RangeError, which names the array, where a finite number is infinite in that.
    """
    numbers = array_of(leaf).reshape(-1)
    before = None if since is None else array_of(since).reshape(-1)
    try:
        # NaN and infinity pass: a mask decides whether they are to be encrypted, and so to be refused.
        with np.errstate(over="raise", under="ignore", invalid="ignore"):
            if exponent:
                change = numbers if before is None else numbers - before
                np.multiply(change, 2.0**-exponent, out=out, casting="same_kind")
            elif before is not None:
                np.subtract(numbers, before, out=out, casting="same_kind")
            else:
                np.copyto(out, numbers, casting="same_kind")
    except FloatingPointError:
        raise RangeError(
            f"{name!r} has a value, or a change, that {out.dtype} cannot hold, far beyond what can be "
            "encrypted: clip it first, or leave the array out with exclude"
        ) from None


def put(flat: Any, numbers: NDArray[np.float64], chosen: NDArray[np.bool_] | None, adds: bool) -> None:
    """Write numbers (count,) to a vector (size,), in place, where ``chosen`` (size,) is true; None for all.

    With ``adds`` what is there is added first, in float64. All other places stay bit for bit.
    """
    # What is too large for a narrow dtype becomes infinite, as torch does.
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(flat, np.ndarray):
            where = slice(None) if chosen is None else chosen
            flat[where] = flat[where].astype(np.float64) + numbers if adds else numbers
            return
        torch = sys.modules["torch"]
        which = slice(None) if chosen is None else torch.from_numpy(chosen).to(flat.device)
        if adds:
            numbers = array_of(flat[which]).astype(np.float64) + numbers
        # Narrowed before it moves: some devices know no float64.
        flat[which] = torch.from_numpy(numbers).to(flat.dtype).to(flat.device)


def contiguous_copy(leaf: Any) -> Any:
    if isinstance(leaf, np.ndarray):
        return np.array(leaf, order="C", subok=False)
    return leaf.detach().resolve_neg().clone(memory_format=sys.modules["torch"].contiguous_format)


def copied(leaf: Any) -> Any:
    if hasattr(leaf, "detach") and not sys.modules["torch"].nn.parameter.is_lazy(leaf):
        return leaf.detach().clone()
    return deepcopy(leaf)


def copy_into(target: Any, source: Any) -> None:
    """Write an array's values to another one's memory; bits stay where both are of one library and dtype."""
    if isinstance(target, np.ndarray):
        with np.errstate(over="ignore", invalid="ignore"):
            target[...] = source if isinstance(source, np.ndarray) else array_of(source)
        return
    if isinstance(source, np.ndarray):
        source = sys.modules["torch"].tensor(np.array(array_of(source), order="C"))
    target.data.copy_(source.detach())


_MOST_WORK = 1_000_000


def check_apart(leaves: Iterable[tuple[str, Any]]) -> None:
    """Raise ParameterError, which names both, for two arrays that share values and are not the same one.

    Such are a matrix and its transpose, or views that overlap: what is written to one changes the other.
    """
    first: dict[Hashable, tuple[str, Any]] = {}
    for name, leaf in leaves:
        memory = memory_of(leaf)
        if memory is not None and not getattr(leaf, "is_meta", False):
            first.setdefault(memory, (name, leaf))
    begun: list[tuple[Any, Any, str, Any]] = []
    for start, stop, name, leaf in sorted((*_span(leaf), name, leaf) for name, leaf in first.values()):
        begun = [other for other in begun if other[1] > start]
        for _, _, other, whole in begun:
            try:
                meet = np.shares_memory(
                    _view(whole),
                    _view(leaf),
                    max_work=_MOST_WORK,  # type: ignore[arg-type]
                )
            # The last two are for what NumPy cannot look at: negated tensors, and those on other devices.
            except (np.exceptions.TooHardError, OverflowError, RuntimeError, TypeError):
                meet = True
            if meet:
                raise ParameterError(
                    f"{other!r} and {name!r} have values in common in memory, and are not the same array: "
                    "make one of them a copy, or leave it out"
                )
        begun.append((start, stop, name, leaf))


def _span(leaf: Any) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return where an array's memory begins and ends, each a device and an address."""
    if isinstance(leaf, np.ndarray):
        start, stop = np.lib.array_utils.byte_bounds(leaf)
        return ("cpu", start), ("cpu", stop)
    reach = sum((size - 1) * stride for size, stride in zip(leaf.shape, leaf.stride(), strict=True))
    device, start = str(leaf.device), leaf.data_ptr()
    return (device, start), (device, start + (reach + 1) * leaf.element_size())


def _view(leaf: Any) -> NDArray[Any]:
    """Return a NumPy array of the same memory; TypeError or RuntimeError for what NumPy cannot look at."""
    if isinstance(leaf, np.ndarray):
        return leaf
    # Of its bits: NumPy does not know the dtype.
    bits = leaf.detach().view(sys.modules["torch"].int16) if dtype_of(leaf) == "bfloat16" else leaf.detach()
    found: NDArray[Any] = bits.numpy()
    return found
