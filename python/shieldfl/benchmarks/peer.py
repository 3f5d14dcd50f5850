"""What the other libraries have in common here: a sample of the values, and sums that are nearly right."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shieldfl.benchmarks.scheme import Scheme, Selection, WrongSumError

__all__ = ["Peer"]


class Peer(Scheme):
    """Another library. It gets its values gathered already, and at most ``most_values`` of them."""

    def __init__(self, name: str, setting: str, most_values: int, tolerance: float) -> None:
        self.name = name
        self.setting = setting
        self._most_values = most_values
        self._tolerance = tolerance

    def sample(self, selection: Selection) -> NDArray[np.float32]:
        """Return the values that this peer is timed on; its cost is linear in their number."""
        return selection.values[: self._most_values]

    def check(self, opened: NDArray[np.float64], values: NDArray[np.float32], times: int) -> None:
        """Raise unless each sum is right within the tolerance."""
        error = np.abs(opened - times * values[: opened.size].astype(np.float64)).max(initial=0.0)
        if opened.size != min(values.size, self._most_values) or not error <= times * self._tolerance:
            raise WrongSumError(f"{self.name} opened a wrong sum: off by {error:.2g}")
