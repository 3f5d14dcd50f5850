"""Buffers in the range that they are encrypted in, which is another one than the parameters'."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import RangeError

__all__ = ["in_buffer_range", "with_buffers_times"]


def with_buffers_times(values: NDArray[Any], buffers: int, factor: float) -> NDArray[Any]:
    """Return values (n,) whose last ``buffers`` are multiplied by a power of two; themselves where that is nothing."""
    if not buffers or factor == 1.0:
        return values
    scaled = values.copy()
    scaled[-buffers:] *= factor
    return scaled


@contextmanager
def in_buffer_range(values: NDArray[Any], buffers: int, factor: float) -> Iterator[NDArray[Any]]:
    """Yield what is encrypted of values (n,), the last of which are buffers; a RangeError for a buffer says so."""
    try:
        yield with_buffers_times(values, buffers, factor)
    except RangeError as error:
        position, size = error.position, error.size
        if (
            position is None
            or size is None
            or position < size - buffers
            or not np.isfinite(values[position - size])
        ):
            raise
        told = RangeError(
            f"the value at position {position} is a buffer, such as BatchNorm's statistics, and beyond the limit of "
            "buffers. It follows the data whatever the learning rate: scale the features to about 1, or raise the "
            "method's setting buffer_range_bits, each bit of which doubles that limit"
        )
        told.position, told.size = position, size
        raise told from None
