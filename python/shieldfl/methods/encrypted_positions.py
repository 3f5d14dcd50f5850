"""Which positions of the vector (parameters, then shared buffers) are encrypted."""

from __future__ import annotations

import numpy as np

from shieldfl.masks import Mask

__all__ = ["encrypted_positions"]


def encrypted_positions(zone: Mask, buffers: int) -> Mask:
    """Return the zone of P parameters, followed by ``buffers`` positions that are all encrypted."""
    if buffers == 0:
        return zone
    size = zone.size + buffers
    return Mask.from_indices(np.concatenate((zone.to_indices(), np.arange(zone.size, size))), size)
