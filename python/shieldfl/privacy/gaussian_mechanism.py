"""Noise of a single release under (epsilon, delta)-differential privacy: the Gaussian mechanism."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

from shieldfl.errors import ParameterError

__all__ = ["discrete_gaussian_noise_multiplier", "gaussian_noise_multiplier"]

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


def discrete_gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Standard deviation, over the L2 sensitivity, that makes one release with discrete noise (epsilon, delta)-private.

    Of the discrete Gaussian it is proved that every order of the Renyi divergence is bounded as the continuous one's,
    which is concentrated differential privacy (Canonne, Kamath and Steinke 2020, theorem 4), and not that each delta
    is. So this takes the least multiplier whose concentrated privacy gives the delta (their corollary 13). It is above
    the least for continuous noise; for epsilons up to 1 the formula of :func:`gaussian_noise_multiplier` asks for more
    at usual deltas.

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

    def excess(log_multiplier: float) -> float:
        return _log_concentrated_delta(math.exp(log_multiplier), epsilon) - math.log(delta)

    low = high = 0.0
    while excess(high) > 0.0:
        high += 1.0
    while excess(low) <= 0.0:
        low -= 1.0
    return math.exp(float(brentq(excess, low, high, xtol=1e-12))) * _SAFETY


def _log_concentrated_delta(multiplier: float, epsilon: float) -> float:
    """Return ln of the delta that follows from the multiplier, by the best of many orders alpha: an upper bound."""
    rho = 0.5 / multiplier**2
    # Near the order at which the exponent alone is least, and above it; any order gives a bound.
    above_1 = max((epsilon - rho) / (2.0 * rho), 1e-3) * np.geomspace(0.25, 8.0, 400)
    orders = 1.0 + above_1
    log_deltas = above_1 * (orders * rho - epsilon) - np.log(above_1) + orders * np.log1p(-1.0 / orders)
    return min(float(log_deltas.min()), 0.0)


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
