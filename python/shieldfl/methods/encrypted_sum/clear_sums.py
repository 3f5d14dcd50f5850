"""Sums of plain numbers in messages: as wide as the model that they move, and no wider."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import WireFormatError
from shieldfl.roles.message import Message

__all__ = ["are_summable", "clear_sums_part", "read_clear_sums"]

_MOST = float(np.finfo(np.float32).max)


def are_summable(values: NDArray[np.float32], weights: int) -> bool:
    """Say whether all are numbers, so small that clients of these weights together cannot leave float32 with them."""
    limit = np.nextafter(np.float32(_MOST / weights), np.float32(0.0))  # however that was rounded
    return bool((np.abs(values) <= limit).all())


def clear_sums_part(sums: NDArray[np.float64]) -> bytes:
    """Return sums as a part of a message, float32: rounded once, when all are in.

    In doubles, they would be twice as many bytes to each client that opens, for digits that its model does not have.
    What float32 cannot hold becomes infinite, which whoever reads it refuses.
    """
    with np.errstate(over="ignore"):
        return sums.astype("<f4").tobytes()


def read_clear_sums(message: Message, name: str, size: int) -> NDArray[np.float64]:
    """Return what :func:`clear_sums_part` wrote. Raises WireFormatError for another number of sums, NaN or infinity."""
    sums: NDArray[np.float64] = message.vector(name, np.float32, size).astype(np.float64)
    if not np.isfinite(sums).all():
        raise WireFormatError(f"part {name!r} holds NaN or infinity")
    return sums
