"""Settings of DP-FedAvg, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shieldfl.array_view import as_real
from shieldfl.errors import ParameterError

__all__ = ["DpFedAvgSettings"]


@dataclass(frozen=True)
class DpFedAvgSettings:
    """How clients noise their updates. Raises ParameterError for values out of range."""

    noise_multiplier: float = 1.0
    """sigma: the noise that each client adds, over the norm that its update is clipped to; 0 for none."""
    target_epsilon: float | None = None
    """Instead of sigma: what a client that takes part in every round may spend against the aggregator."""
    clip_norm: float = 1.0
    """C: the L2 norm that a client's whole update is clipped to."""
    delta: float = 1e-5
    """Of both stated epsilons."""

    def __post_init__(self) -> None:
        if not 0.0 <= as_real(self.noise_multiplier, "noise_multiplier") < math.inf:
            raise ParameterError("noise_multiplier (sigma) must be finite and not negative")
        if self.target_epsilon is not None and not (
            0.0 < as_real(self.target_epsilon, "target_epsilon") < math.inf
        ):
            raise ParameterError("target_epsilon must be positive and finite")
        if not 0.0 < as_real(self.clip_norm, "clip_norm") < math.inf:
            raise ParameterError("clip_norm (C) must be positive and finite")
        if not 0.0 < as_real(self.delta, "delta") < 1.0:
            raise ParameterError("delta must lie between 0 and 1")
