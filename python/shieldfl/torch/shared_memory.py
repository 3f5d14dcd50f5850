"""Arrays that share memory: under several names of one, or otherwise, which no copying in turn can get right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError
from shieldfl.torch.leaves import memory_of

__all__ = ["check_apart"]

_MOST_WORK = 1_000_000


def check_apart(leaves: Iterable[tuple[str, Any]]) -> None:
    """Raise ParameterError, which names both, for two arrays that have values in common and are not the same one.

    Such are a matrix and its transpose, or views that overlap: what is written to one changes the other.
    """
    spans: dict[Any, tuple[str, int, int, str, Any]] = {}
    for name, leaf in leaves:
        memory = memory_of(leaf)
        if memory is not None and memory not in spans and (span := _span(leaf)) is not None:
            spans[memory] = name, *span, leaf
    begun: list[tuple[str, int, int, str, Any]] = []
    for one in sorted(spans.values(), key=lambda span: (span[3], span[1])):
        begun = [other for other in begun if other[3] == one[3] and other[2] > one[1]]
        for other in begun:
            if _meet(other[4], one[4]):
                raise ParameterError(
                    f"{other[0]!r} and {one[0]!r} have values in common in memory, and are not the same array: make "
                    "one of them a copy, or leave it out"
                )
        begun.append(one)


def _span(leaf: Any) -> tuple[int, int, str] | None:
    """Return where an array's memory begins and ends, and on which device; None for tensors without any."""
    if isinstance(leaf, np.ndarray):
        start, stop = np.lib.array_utils.byte_bounds(leaf)
        return int(start), int(stop), "cpu"
    if leaf.is_meta:
        return None
    reach = sum((size - 1) * stride for size, stride in zip(leaf.shape, leaf.stride(), strict=True))
    start = leaf.data_ptr()
    return start, start + (reach + 1) * leaf.element_size(), str(leaf.device)


def _meet(one: Any, other: Any) -> bool:
    views = [_view(leaf) for leaf in (one, other)]
    if views[0] is None or views[1] is None:
        return True
    try:
        return np.shares_memory(views[0], views[1], max_work=_MOST_WORK)  # type: ignore[arg-type]
    except (np.exceptions.TooHardError, OverflowError):
        return True


def _view(leaf: Any) -> NDArray[Any] | None:
    """Return a NumPy array of the same memory; None for what NumPy cannot look at."""
    if isinstance(leaf, np.ndarray):
        return leaf
    if leaf.device.type != "cpu" or leaf.is_neg():
        return None
    import torch

    # Of its bits: NumPy does not know the dtype.
    plain = leaf.detach()
    found: NDArray[Any] = plain.view(torch.int16).numpy() if plain.dtype == torch.bfloat16 else plain.numpy()
    return found
