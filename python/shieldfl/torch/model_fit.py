"""Whether a model's arrays are those of a layout: all that differs, said at once."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from shieldfl.errors import ArrayTypeError, ParameterError
from shieldfl.torch.leaf_values import check_present, same_values
from shieldfl.torch.leaves import dtype_of, is_float, memory_of
from shieldfl.torch.place import Place

__all__ = ["check_fit"]

_MOST_SHOWN = 10


def check_fit(
    places: Sequence[Place], apart: Collection[str], leaves: Mapping[str, Any], *, overwritten: bool
) -> None:
    """Raise ParameterError for arrays by name that are not those of a layout; the message has all differences.

    ArrayTypeError where they are of dtypes alone, and, by its name, for an array that cannot be encrypted at all.
    ``overwritten``: names of one tensor may have other values each.
    """
    known = {name for place in places for name in place.names} | set(apart)
    other = [f"{place.name!r} is missing" for place in places if place.name not in leaves]
    other += [f"{name!r} is not in the layout" for name in leaves if name not in known]
    types: list[str] = []
    for place in places:
        for name in (name for name in place.names if name in leaves):
            leaf = leaves[name]
            if not is_float(name, leaf):
                types.append(f"{name!r} is of {dtype_of(leaf)}, and in the layout of {place.dtype}")
            elif tuple(leaf.shape) != place.shape:
                other.append(f"{name!r} has the shape {tuple(leaf.shape)}, and in the layout {place.shape}")
    if other or types:
        kind = ParameterError if other else ArrayTypeError
        every = [*other, *types]
        more = f"; and {len(every) - _MOST_SHOWN} more" if len(every) > _MOST_SHOWN else ""
        raise kind(f"this is not a model of the layout: {'; '.join(every[:_MOST_SHOWN])}{more}")
    for place in places:
        _check_one_tensor(place, leaves, overwritten=overwritten)


def _check_one_tensor(place: Place, leaves: Mapping[str, Any], *, overwritten: bool) -> None:
    first = leaves[place.name]
    for name in (name for name in place.names if name in leaves):
        leaf = leaves[name]
        check_present(name, leaf)
        alike = overwritten or leaf is first or memory_of(leaf) == memory_of(first)
        if not alike and not same_values(leaf, first):
            raise ParameterError(
                f"{name!r} has other values than {place.name!r}, and in the layout they are one tensor: make it of a "
                "model where they are two, or pass one of both"
            )
