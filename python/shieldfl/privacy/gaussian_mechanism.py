"""Noise of a single release under (epsilon, delta)-differential privacy: the Gaussian mechanism."""

from __future__ import annotations

import math

from scipy.optimize import brentq
from scipy.special import log_ndtr

from shieldfl.errors import ParameterError

__all__ = ["gaussian_noise_multiplier"]

_LARGEST_CLASSICAL_EPSILON = 1.0
# The root is found to 1e-12; this much more keeps it on the private side.
_SAFETY = 1.0 + 1e-9


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Standard deviation, over the L2 sensitivity, that makes one release (epsilon, delta)-private.

    Up to epsilon 1 it is sqrt(2 ln(1.25/delta)) / epsilon (SenseCrypt, appendix G; Dwork and Roth 2014,
    theorem A.1), which is proved there and more than enough. Above 1 that formula falls short, so the least
    multiplier is computed from the mechanism's exact delta (Balle and Wang 2018, theorem 8). At 1 the result
    drops by the slack of the formula; it never rises with epsilon.

    Parameters
    ----------
    epsilon : float
        Positive and finite.
    delta : float
        In (0, 1).

    Raises
    ------
    ParameterError
        If an argument is out of range.
    """
    if not (math.isfinite(epsilon) and epsilon > 0.0):
        raise ParameterError("epsilon must be positive and finite")
    if not 0.0 < delta < 1.0:
        raise ParameterError("delta must lie strictly between 0 and 1")
    if epsilon <= _LARGEST_CLASSICAL_EPSILON:
        return _classical_multiplier(epsilon, delta)

    def excess(log_multiplier: float) -> float:
        return _log_delta(math.exp(log_multiplier), epsilon) - math.log(delta)

    high = math.log(_classical_multiplier(_LARGEST_CLASSICAL_EPSILON, delta))
    low = high
    while excess(low) <= 0.0:
        low -= 1.0
    return math.exp(float(brentq(excess, low, high, xtol=1e-12))) * _SAFETY


def _classical_multiplier(epsilon: float, delta: float) -> float:
    return math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon


def _log_delta(multiplier: float, epsilon: float) -> float:
    """Return ln of the least delta of noise with this multiplier: falls as the multiplier grows."""
    half_step, shift = 0.5 / multiplier, epsilon * multiplier
    # delta = Phi(a) - exp(epsilon) Phi(b): in logarithms, since both terms may be far below what floats hold.
    log_first = float(log_ndtr(half_step - shift))
    log_ratio = epsilon + float(log_ndtr(-half_step - shift)) - log_first
    # Where rounding hides how much smaller the second is, the first alone is a bound.
    return log_first + (math.log(-math.expm1(log_ratio)) if log_ratio < 0.0 else 0.0)
