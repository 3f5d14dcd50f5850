"""Settings of Alt-FL's four methods and of averaging with DP-SGD."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shieldfl.array_view import as_real, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.methods.alt_fl.schedule import AlternatingSchedule
from shieldfl.methods.encrypted_sum.encryption_settings import EncryptionSettings

__all__ = ["AltFlSettings", "DpSgdSettings"]


@dataclass(frozen=True)
class DpSgdSettings:
    """How clients train by DP-SGD. Raises ParameterError for values out of range."""

    noise_multiplier: float = 1.0
    """sigma: the noise on a batch's summed gradients over the norm that each is clipped to; 0 for none."""
    max_grad_norm: float = 4.7
    """C, which the gradient of every sample is clipped to; Alt-FL's."""
    delta: float | None = None
    """Of the stated epsilon; None for 1/N, N the samples of all clients."""

    def __post_init__(self) -> None:
        _check_dp_sgd(self.noise_multiplier, self.max_grad_norm, self.delta)


@dataclass(frozen=True)
class AltFlSettings(EncryptionSettings):
    """Alt-FL's settings. Raises ParameterError for values out of range."""

    interleaving_ratio: str = "1/2"
    """rho, a fraction: the share of rounds of the second kind, with DP-SGD (PI) or synthetic data (SI). MP has none."""
    encrypted_share: float = 1.0
    """eta: the share of the parameters that encrypted rounds encrypt, those with the largest gradients."""
    noise_multiplier: float = 0.5
    """sigma of rounds with DP-SGD; 0 for none."""
    max_grad_norm: float = 4.7
    """C, which DP-SGD clips the gradient of every sample to."""
    delta: float | None = None
    """Of the stated epsilon; None for 1/N, N the samples of all clients."""
    synthetic_epsilon: float = 10.0
    """What the built-in synthetic data set may cost the real one; no matter where another set is given."""
    synthetic_samples: int | None = None
    """How many of them to make, for all clients together; None for as many as there are real ones."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.interleaving_ratio, str):
            raise ParameterError('interleaving_ratio must be text such as "1/4"')
        AlternatingSchedule(self.interleaving_ratio)
        if not 0.0 <= as_real(self.encrypted_share, "encrypted_share") <= 1.0:
            raise ParameterError("encrypted_share (eta) must be at least 0 and at most 1")
        _check_dp_sgd(self.noise_multiplier, self.max_grad_norm, self.delta)
        if not 0.0 < as_real(self.synthetic_epsilon, "synthetic_epsilon") < math.inf:
            raise ParameterError("synthetic_epsilon must be positive and finite")
        if (
            self.synthetic_samples is not None
            and as_unsigned(self.synthetic_samples, "synthetic_samples") < 1
        ):
            raise ParameterError("synthetic_samples must be at least 1")


def _check_dp_sgd(noise_multiplier: float, max_grad_norm: float, delta: float | None) -> None:
    if not 0.0 <= as_real(noise_multiplier, "noise_multiplier") < math.inf:
        raise ParameterError("noise_multiplier (sigma) must be finite and not negative")
    if not 0.0 < as_real(max_grad_norm, "max_grad_norm") < math.inf:
        raise ParameterError("max_grad_norm (C) must be positive and finite")
    if delta is not None and not 0.0 < as_real(delta, "delta") < 1.0:
        raise ParameterError("delta must lie between 0 and 1")
