"""Buffers in the range that they are encrypted in, which is another one than the parameters'."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from numpy.typing import NDArray

from shieldfl.errors import RangeError

__all__ = ["speaking_of_buffers", "with_buffers_times"]

_TOO_LARGE = re.compile(r"(.* is above the limit of )(\S+)( in magnitude): ")


def with_buffers_times(values: NDArray[Any], buffers: int, factor: float) -> NDArray[Any]:
    """Return values (n,) whose last ``buffers`` are multiplied by a power of two; themselves where that is nothing."""
    if not buffers or factor == 1.0:
        return values
    scaled = values.copy()
    scaled[-buffers:] *= factor
    return scaled


@contextmanager
def speaking_of_buffers(buffers: int, factor: float) -> Iterator[None]:
    """Let a RangeError of encryption speak of buffers, the last of the values, as they were before their factor."""
    try:
        yield
    except RangeError as error:
        found = _TOO_LARGE.match(str(error))
        position, size = error.position, error.size
        if found is None or position is None or size is None or position < size - buffers:
            raise
        told = RangeError(
            f"{found[1]}{float(found[2]) / factor:g}{found[3]}: it is a buffer, such as BatchNorm's statistics, which "
            "follow the data whatever the learning rate. Scale the features to about 1, or raise the method's setting "
            "buffer_range_bits: each bit doubles that limit"
        )
        told.position, told.size = position, size
        raise told from None
