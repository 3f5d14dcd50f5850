"""SelectiveShield's settings, checked once."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shieldfl.array_view import as_unsigned
from shieldfl.errors import ParameterError

__all__ = ["SelectiveShieldSettings"]

_LEAST_DISCRETE_MULTIPLIER = 2.0**-29
"""Below it, the clipping norm would be more steps of the grid than the core computes with (2^50)."""


@dataclass(frozen=True)
class SelectiveShieldSettings:
    """Settings of SelectiveShield. Raises ParameterError for values out of range or that contradict each other."""

    threshold: float | tuple[float, ...] = 0.05
    """tau of eq. 14, in [0, 1], one for all clients or one for each. A negative one chooses every position."""
    consensus: float = 0.5
    """rho of eq. 16, above 0 and at most 1; 1 is the intersection."""
    noise_multiplier: float = 0.0
    """sigma of eq. 21; 0 sends the noise zone in the clear."""
    noise_distribution: str = "gaussian"
    """``"gaussian"``: floating-point noise. ``"discrete-gaussian"``: drawn exactly, on a grid that the noise's
    standard deviation decides, so that the privacy proof speaks of the numbers sent; slower."""
    clip_norm: float = 1.0
    """C of eq. 20, the L2 norm of the noise zone's update. Clips only where there is noise."""
    adaptive_clip: bool = False
    """Follow the client's own recent norms. Not private: the norms themselves are data."""
    target_epsilon: float | None = None
    """Instead of a noise multiplier: what the noise of all rounds together may be charged (by eq. 22).

    It bounds the noise alone. What holds is infinite where masks follow from the data or a sum opened without noise
    came before, see :mod:`shieldfl.privacy.events`.
    """
    delta: float = 1e-5
    """Delta of every stated epsilon."""
    divisor: str = "contributors"
    """Of a position's sum: ``"contributors"`` (the clients that sent it) or ``"participants"`` (all; eq. 26)."""
    negotiation: str = "clear"
    """``"clear"``: the aggregator sees every mask, as in the paper. ``"encrypted"``: only the authority sees
    tallies."""
    hide_personalised: bool = False
    """Send noise on personalised positions, so that an upload does not tell them. Needs encrypted negotiation."""
    buffers: str = "local"
    """BatchNorm statistics: ``"local"`` to each client (FedBN) or averaged in the ``"encrypted"`` zone."""
    sensitivity: str = "full-batch"
    """``"full-batch"``: the squared gradient of all local data at the start of the round (eq. 12); ``"batch"``:
    the squared gradient accumulated over the round's mini-batches; ``"per-sample"``: the mean of squares (eq. 3)."""
    value_bits: int = 24
    """Of an encrypted value."""
    fraction_bits: int = 20
    """Of an encrypted value, behind the binary point."""

    def __post_init__(self) -> None:
        """Check every field."""
        self._check_fixed_point()
        thresholds = self.threshold if isinstance(self.threshold, tuple) else (self.threshold,)
        if not thresholds or not all(value <= 1.0 for value in thresholds):
            raise ParameterError(
                "every threshold (tau) must be at most 1; a negative one chooses every position"
            )
        if not 0.0 < self.consensus <= 1.0:
            raise ParameterError("consensus (rho) must be above 0 and at most 1")
        if not (math.isfinite(self.noise_multiplier) and self.noise_multiplier >= 0.0):
            raise ParameterError("noise_multiplier (sigma) must be finite and not negative")
        if not (math.isfinite(self.clip_norm) and self.clip_norm > 0.0):
            raise ParameterError("clip_norm must be positive and finite")
        if not 0.0 < self.delta < 1.0:
            raise ParameterError("delta must lie between 0 and 1")
        if self.target_epsilon is not None and not 0.0 < self.target_epsilon < math.inf:
            raise ParameterError("target_epsilon must be positive and finite")
        if self.target_epsilon is not None and self.noise_multiplier != 0.0:
            raise ParameterError("give noise_multiplier or target_epsilon, not both")
        for name, choices in (
            ("noise_distribution", ("gaussian", "discrete-gaussian")),
            ("divisor", ("contributors", "participants")),
            ("negotiation", ("clear", "encrypted")),
            ("buffers", ("local", "encrypted")),
            ("sensitivity", ("full-batch", "batch", "per-sample")),
        ):
            if getattr(self, name) not in choices:
                raise ParameterError(f"{name} must be one of {', '.join(choices)}")
        if self.has_discrete_noise and self.noise_multiplier < _LEAST_DISCRETE_MULTIPLIER:
            raise ParameterError(
                "noise_multiplier (sigma) must be at least 2^-29 for discrete-gaussian noise"
            )
        if self.hide_personalised and self.negotiation != "encrypted":
            raise ParameterError(
                "hide_personalised needs negotiation='encrypted': in a clear one the aggregator sees the masks"
            )
        if self.hide_personalised and self.noise_multiplier == 0.0 and self.target_epsilon is None:
            raise ParameterError(
                "hide_personalised needs noise: without it the hidden positions would be zeros"
            )

    def _check_fixed_point(self) -> None:
        for name, least, most in (("value_bits", 2, 40), ("fraction_bits", 0, 52)):
            if not least <= as_unsigned(getattr(self, name), name) <= most:
                raise ParameterError(f"{name} must be between {least} and {most}")

    @property
    def has_discrete_noise(self) -> bool:
        """Whether discrete noise is added; while a target epsilon is not resolved to a multiplier, it is not."""
        return self.noise_distribution == "discrete-gaussian" and self.noise_multiplier > 0.0

    def threshold_of(self, client: int) -> float:
        """Return the client's threshold."""
        return self.threshold[client] if isinstance(self.threshold, tuple) else self.threshold
