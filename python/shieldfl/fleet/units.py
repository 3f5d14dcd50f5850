"""Rates, times and numbers as fleet files write them: ``"400 Mbit/s"``, ``"20 ms"``, ``0.5``."""

from __future__ import annotations

import math
import re
from typing import Any

from shieldfl.errors import ParameterError

__all__ = ["as_bytes_per_second", "as_count", "as_number", "as_seconds"]

# Decimal prefixes, as network equipment and the papers use them.
_BYTES_PER_SECOND = {
    f"{prefix}{unit}/s": scale * factor
    for unit, scale in (("B", 1.0), ("bit", 0.125))
    for prefix, factor in (("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9))
}
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}
_QUANTITY = re.compile(r"\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(\S*)\s*")


def as_bytes_per_second(value: Any, what: str) -> float:
    """Read a rate such as ``"50 MB/s"`` or ``"400 Mbit/s"`` as bytes a second; it must be above zero.

    Raises ParameterError, which begins with ``what``, for no rate, an unknown unit or a rate that is not positive.
    """
    rate = _quantity(value, what, _BYTES_PER_SECOND, "50 MB/s")
    if rate <= 0.0:
        raise ParameterError(f"{what} must be above zero: a client without bandwidth never answers")
    return rate


def as_seconds(value: Any, what: str) -> float:
    """Read a time such as ``"20 ms"`` as seconds; it must not be negative.

    Raises ParameterError, which begins with ``what``, for no time, an unknown unit or a negative one.
    """
    seconds = _quantity(value, what, _SECONDS, "20 ms")
    if seconds < 0.0:
        raise ParameterError(f"{what} must not be negative")
    return seconds


def as_number(
    value: Any,
    what: str,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
) -> float:
    """Read a finite number, or a text that is one, within bounds; ParameterError names ``what`` and the bound."""
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if match is None or match[2]:
            raise ParameterError(f"{what} must be a plain number, not {value!r}")
        value = float(match[1])
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ParameterError(f"{what} must be a finite number, not {value!r}")
    number = float(value)
    bounds = [
        f"{words} {bound:g}"
        for words, bound in (("above", above), ("at least", least), ("below", below), ("at most", most))
        if math.isfinite(bound)
    ]
    if not (above < number < below and least <= number <= most):
        raise ParameterError(f"{what} must be {' and '.join(bounds)}, not {number:g}")
    return number


def as_count(value: Any, what: str, *, least: int = 1, most: int = 2**40) -> int:
    """Read a whole number within bounds; ParameterError names ``what`` and the bound."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ParameterError(f"{what} must be a whole number, not {value!r}")
    if not least <= value <= most:
        raise ParameterError(f"{what} must be at least {least} and at most {most}, not {value}")
    return value


def _quantity(value: Any, what: str, units: dict[str, float], example: str) -> float:
    if not isinstance(value, str):
        raise ParameterError(f"{what} needs a unit: write it as a text such as {example!r}")
    match = _QUANTITY.fullmatch(value)
    if match is None:
        raise ParameterError(f"{what} is {value!r}: write a number and a unit, such as {example!r}")
    number, unit = float(match[1]), match[2]
    if unit not in units:
        said = f"has the unknown unit {unit!r}" if unit else "has no unit"
        raise ParameterError(f"{what} {said}: use one of {', '.join(units)}, as in {example!r}")
    if not math.isfinite(number):
        raise ParameterError(f"{what} must be a finite number")
    return number * units[unit]
