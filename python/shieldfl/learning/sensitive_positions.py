"""Which positions a client's scores make sensitive: of NumPy alone, for those who hold scores and train nothing."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import ParameterError


def sensitive_positions(normalised: NDArray[np.float32], threshold: float) -> NDArray[np.bool_]:
    """Choose the positions (P,) whose normalised score is strictly above a threshold in [0, 1] (SelectiveShield, eq.

    14).
    """
    if not 0.0 <= threshold <= 1.0:
        raise ParameterError("the sensitivity threshold must lie in [0, 1]")
    chosen: NDArray[np.bool_] = normalised > np.float32(threshold)
    return chosen
