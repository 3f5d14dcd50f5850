"""Choosing bits for values like those of a sample update, by the error that rounding may have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

import shieldfl._core as _core
from shieldfl.array_view import as_real, as_update
from shieldfl.errors import ParameterError, RangeError
from shieldfl.masks import Mask

__all__ = ["FittedScale", "fit_scale"]

# The share of a sample's values which may do that: half of what brings a warning.
_ROUNDED_TO_ZERO = 0.05


@dataclass(frozen=True)
class FittedScale:
    """The bits that were chosen, and what for."""

    value_bits: int
    fraction_bits: int
    relative_error: float
    """What rounding may come to, in the L2 norm, for an update as long as the sample."""
    headroom: float
    weights: tuple[float, float] | None

    def describe(self) -> str:
        """Say in a line what the bits are good for."""
        weights = "" if self.weights is None else f", weights {self.weights[0]:.3g} to {self.weights[1]:.3g}"
        return (
            f"rounding below {self.relative_error:.2g} of an update like the sample, "
            f"values up to {self.headroom:g} times its largest{weights}"
        )


@dataclass(frozen=True)
class _Sample:
    """What matters of a sample: the sizes of its values that are not zero, and the weights that they get."""

    rms: float
    largest: float
    small: float
    """Few are smaller: the share _ROUNDED_TO_ZERO."""
    smallest_weight: float
    largest_weight: float
    weighted: bool

    def weight_bits(self, error: float) -> int:
        """Bits behind a weight's point for which rounding the smallest one is within this relative error."""
        return max(math.ceil(-1.0 - math.log2(error) - math.log2(self.smallest_weight)), 0)

    def bits_for_small_values(self) -> int:
        """Bits behind the point for which half a step is as large as a small value, times the smallest weight."""
        return max(math.ceil(-1.0 - math.log2(self.small) - math.log2(self.smallest_weight)), 0)

    def fraction_bits(self, error: float) -> int:
        """Bits behind the point for which half a step at each value is within this relative error."""
        return max(
            math.ceil(-1.0 - math.log2(error) - math.log2(self.rms) - math.log2(self.smallest_weight)), 0
        )

    def value_bits(self, fraction_bits: int, headroom: float) -> int:
        """Bits that hold the largest value, times headroom and the largest weight, with its sign."""
        top = self.largest * headroom * self.largest_weight
        if top >= 2.0**_core.MOST_VALUE_BITS:
            return _core.MOST_VALUE_BITS + 1
        return 1 + math.ceil(math.ldexp(top, min(fraction_bits, _core.MOST_FRACTION_BITS))).bit_length()

    def error(self, value_bits: int, fraction_bits: int) -> float:
        """Return what rounding values and weights may come to, relative to one client's weighted update."""
        error = math.ldexp(0.5, -fraction_bits) / self.rms / self.smallest_weight
        if self.weighted:
            error += math.ldexp(0.5, -min(fraction_bits, value_bits - 2)) / self.smallest_weight
        return error


def fit_scale(
    sample_update: Any,
    *,
    guard_bits: int,
    mask: Mask | None,
    weights: tuple[float, float] | None,
    relative_error: float,
    headroom: float,
) -> FittedScale:
    """Choose the fewest bits with which rounding stays within ``relative_error``; see ``Parameters.fit``.

    ``guard_bits`` : of a sum over all clients. Every value may be off by half a step, so the L2 norm of the error is
    at most sqrt(n) / 2 steps for n values that are not zero. Where there are weights, rounding them gets one half of
    what is allowed. If there is room, steps are also so fine that few of the sample's values round to zero, however
    small some are. Raises ParameterError, RangeError.
    """
    wanted, times = as_real(relative_error, "relative_error"), as_real(headroom, "headroom")
    if not 0.0 < wanted < 1.0:
        raise ParameterError("relative_error must be above 0 and below 1, such as 1e-3")
    if not 1.0 <= times < math.inf:
        raise ParameterError("headroom must be at least 1: how often the sample's largest value has to fit")
    bounds = None if weights is None else _read_weights(weights)
    sample = _read_sample(sample_update, mask, bounds)
    share = wanted if bounds is None else wanted / 2.0
    weight_bits = 0 if bounds is None else sample.weight_bits(share)
    fraction_bits = max(sample.fraction_bits(share), weight_bits)
    # A weight may be rounded up, by as much as it may be off at all.
    room = times if bounds is None else times * (1.0 + share)
    most_bits = min(_core.MOST_VALUE_BITS, _core.MOST_FIELD_BITS - guard_bits)
    for bits in (max(fraction_bits, sample.bits_for_small_values()), fraction_bits):
        value_bits = max(sample.value_bits(bits, room), 2 + weight_bits)
        if bits <= _core.MOST_FRACTION_BITS and value_bits <= most_bits:
            return FittedScale(value_bits, bits, sample.error(value_bits, bits), times, bounds)
    raise ParameterError(_no_room(sample, most_bits, room, wanted))


def _read_weights(weights: tuple[float, float]) -> tuple[float, float]:
    try:
        smallest, largest = weights
    except (TypeError, ValueError):
        raise ParameterError(
            "weights must be two numbers: the smallest and the largest of a client"
        ) from None
    smallest, largest = as_real(smallest, "a weight"), as_real(largest, "a weight")
    if not 0.0 < smallest <= largest <= 1.0:
        raise ParameterError(
            "weights must be the smallest and the largest of a client, above 0 and at most 1: divide every client's "
            "by the largest one"
        )
    return smallest, largest


def _read_sample(sample_update: Any, mask: Mask | None, weights: tuple[float, float] | None) -> _Sample:
    values = as_update(sample_update)
    if mask is not None:
        values = mask.gather(values)
    sizes = np.abs(values.astype(np.float64))
    if not np.isfinite(sizes).all():
        raise RangeError(
            "the sample update holds NaN or infinity: fit the scale to one that a client could send"
        )
    sizes = sizes[sizes > 0.0]
    if not sizes.size:
        raise ParameterError("all values of the sample update are zero: fit the scale to one that is typical")
    largest = float(sizes.max())
    smallest_weight, largest_weight = weights or (1.0, 1.0)
    rms = largest * math.sqrt(float(np.mean((sizes / largest) ** 2)))
    small = float(np.quantile(sizes, _ROUNDED_TO_ZERO))
    return _Sample(rms, largest, small, smallest_weight, largest_weight, weights is not None)


def _no_room(sample: _Sample, most_bits: int, headroom: float, wanted: float) -> str:
    """Say what can be reached instead."""
    fits = [
        bits for bits in range(_core.MOST_FRACTION_BITS + 1) if sample.value_bits(bits, headroom) <= most_bits
    ]
    if not fits:
        return (
            f"no scale has room for the sample's largest value in {most_bits} bits: scale the updates down, or "
            "lower headroom or max_clients"
        )
    achievable = sample.error(most_bits, fits[-1])
    return (
        f"{most_bits} bits a value and {_core.MOST_FRACTION_BITS} behind the point reach a relative error of "
        f"{achievable:.2g}, not {wanted:.2g}: ask for no less than that, lower headroom or max_clients, or bring "
        "the weights closer together"
    )
