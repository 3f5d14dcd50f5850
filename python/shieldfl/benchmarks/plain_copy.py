"""The same values in the clear: what sending them costs where nothing is protected."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shieldfl.benchmarks.scheme import Scheme, Selection

__all__ = ["PlainCopy"]


class PlainCopy(Scheme):
    """A copy of float32 values that are gathered already, into memory that is there already; sums in float32."""

    def __init__(self) -> None:
        super().__init__(
            "plain copy",
            "memcpy of the float32 values into memory that is there already, sums in float32: nothing is protected",
        )
        self._sent = np.empty(0, np.float32)

    def encrypt(self, selection: Selection) -> NDArray[np.float32]:
        """Copy. All frames share the memory, and hold the same values."""
        if self._sent.size != selection.values.size:
            self._sent = np.empty_like(selection.values)
        np.copyto(self._sent, selection.values)
        return self._sent

    def serialise(self, encrypted: NDArray[np.float32]) -> NDArray[np.uint8]:
        """Return the bytes, which are there already."""
        return encrypted.view(np.uint8)

    def start_sum(self, frame: NDArray[np.uint8]) -> NDArray[np.float32]:
        """Copy the first frame."""
        return frame.view(np.float32).copy()

    def add(self, total: NDArray[np.float32], frame: NDArray[np.uint8]) -> None:
        """Add."""
        np.add(total, frame.view(np.float32), out=total)

    def open(self, closed: NDArray[np.float32]) -> NDArray[np.float64]:
        """Return the sums as everybody's are returned."""
        return closed.astype(np.float64)
