"""One array of a layout: its names, shape and dtype, and by what its values are divided."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shieldfl.errors import ParameterError
from shieldfl.torch.leaves import FLOATS
from shieldfl.torch.name_patterns import matching

__all__ = ["Place", "exponents_of", "texts"]

_MOST_EXPONENT = 1_000
_MOST_DIMENSIONS = 64  # of a NumPy array


@dataclass(frozen=True)
class Place:
    """What a layout knows of an array."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    exponent: int
    """Its values are divided by two to this before they are encrypted, and multiplied afterwards."""
    aliases: tuple[str, ...]
    """Other names of the same memory."""

    @property
    def size(self) -> int:
        """How many values it has."""
        return math.prod(self.shape)

    @property
    def names(self) -> tuple[str, ...]:
        """All of its names, the first one first."""
        return (self.name, *self.aliases)

    @classmethod
    def from_json(cls, read: Any) -> Place:
        """Make it of the dict of its fields that JSON has. Raises ValueError, TypeError or KeyError."""
        (name,), (dtype,) = texts([read["name"]]), texts([read["dtype"]])
        shape = _listed(read["shape"])
        if dtype not in FLOATS or len(shape) > _MOST_DIMENSIONS:
            raise ValueError("no dtype or no shape that a layout's arrays have")
        sizes = tuple(_natural(size, 2**63 - 1) for size in shape)
        return cls(name, sizes, dtype, _natural(read["exponent"], _MOST_EXPONENT), texts(read["aliases"]))


def texts(read: Any) -> tuple[str, ...]:
    """Check that what JSON has is a list of texts. Raises ValueError."""
    listed = _listed(read)
    if not all(isinstance(one, str) for one in listed):
        raise ValueError("not a list of texts")
    return tuple(listed)


def _listed(read: Any) -> list[Any]:
    if not isinstance(read, list):
        raise ValueError("not a list")
    return read


def _natural(read: Any, most: int) -> int:
    if type(read) is not int or not 0 <= read <= most:
        raise ValueError("no whole number, or one that nothing has")
    return read


def exponents_of(names: Iterable[str], ranges: Mapping[str, float], limit: float) -> dict[str, int]:
    """Return, by name, the least power of two that brings values of a range down to ``limit`` or below; 0 if absent.

    Raises ParameterError for a number that is none above 0, a pattern that matches nothing, and too large a range.
    """
    if not isinstance(ranges, Mapping):
        raise ParameterError("ranges is a dict: for each glob the largest magnitude")
    most = _positive(limit, "limit")
    listed, found = list(names), dict[str, int]()
    for pattern, largest in ranges.items():
        found |= dict.fromkeys(matching(listed, pattern), _exponent_for(pattern, largest, most))
    return found


def _positive(value: Any, what: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if isinstance(value, str) or not (math.isfinite(number) and number > 0):
        raise ParameterError(f"{what} must be a number above 0")
    return number


def _exponent_for(pattern: str, value: Any, limit: float) -> int:
    largest = _positive(value, f"the range of {pattern!r}")
    # Logarithms would be rounded, and a value at the very end of its range be refused.
    (part, power), (most_part, most_power) = math.frexp(largest), math.frexp(limit)
    exponent = max(0, power - most_power + (part > most_part))
    if exponent > _MOST_EXPONENT:
        raise ParameterError(f"the range of {pattern!r} is too large")
    return exponent
