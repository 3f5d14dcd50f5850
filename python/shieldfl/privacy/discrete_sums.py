"""What sums of discrete noise cost, by theorem: n honest clients' shares on vectors of integers.

Sources: Kairouz, Liu and Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure
Aggregation" (ICML 2021), for sums of discrete Gaussians and for randomised rounding; Agarwal, Kairouz and Liu, "The
Skellam Mechanism for Differentially Private Federated Learning" (NeurIPS 2021). Both speak of two vectors of integers
whose difference has a bounded norm, so that nothing here is of real numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Distribution = Literal["skellam", "discrete-gaussian"]

_SPREAD = 8.0
"""By how much a rotated value may be above its root mean square: a larger one has a chance of 2 exp(-32)."""


def divergences_of_sum(
    distribution: Distribution,
    *,
    clients: int,
    share_variance: int,
    norm_squared: int,
    dimension: int,
    orders: Sequence[float],
) -> NDArray[np.float64]:
    """Return an upper bound of the Rényi divergence at each order (m,) of one sum, whichever of two vectors is in it.

    Parameters
    ----------
    clients : whose shares are in the sum, at least 1.
    share_variance : of one share on each value, in squared steps, at least 1.
    norm_squared : the largest squared L2 norm of the vectors' difference, in squared steps.
    dimension : how many values a vector has.
    orders : above 1.
    """
    alphas = np.asarray(orders, dtype=np.float64)
    if distribution == "skellam":
        return _skellam_divergences(alphas, clients * share_variance, norm_squared, dimension)
    return alphas / 2.0 * _concentrated(clients, share_variance, norm_squared, dimension) ** 2


def _skellam_divergences(
    alphas: NDArray[np.float64], variance: int, norm_squared: int, dimension: int
) -> NDArray[np.float64]:
    """The Skellam paper's bound for vectors, which is of whole orders, and lines between them.

    (alpha - 1) times the divergence is convex in alpha and 0 at 1 (van Erven and Harremoës 2014), so that the line
    between two whole orders bounds it.
    """
    # Of integers no magnitude is above its square.
    summed = min(math.sqrt(dimension * norm_squared), float(norm_squared))

    def scaled(whole: NDArray[np.float64]) -> NDArray[np.float64]:
        gaussian = whole * norm_squared / (2.0 * variance)
        first = ((2.0 * whole - 1.0) * norm_squared + 6.0 * summed) / (4.0 * variance**2)
        second = 3.0 * summed / (2.0 * variance)
        bound: NDArray[np.float64] = (whole - 1.0) * (gaussian + np.minimum(first, second))
        return bound

    low = np.floor(alphas)
    part = alphas - low
    between: NDArray[np.float64] = ((1.0 - part) * scaled(low) + part * scaled(low + 1.0)) / (alphas - 1.0)
    return between


def _concentrated(clients: int, share_variance: int, norm_squared: int, dimension: int) -> float:
    """The discrete Gaussian paper's theorem on sums: they are (eps^2 / 2)-concentrated private; return eps.

    A sum of discrete Gaussians is none itself; ``excess`` is by how much its logarithm may be off.
    """
    excess = 0.0
    if clients > 1:
        # Of the paper's sum over k = 1 to clients - 1, the first term, and the second in the place of all after it.
        rate = 2.0 * math.pi**2 * share_variance
        excess = 10.0 * (math.exp(-rate / 2.0) + (clients - 2) * math.exp(-rate * 2.0 / 3.0))
    ratio = norm_squared / (clients * share_variance)
    return min(math.sqrt(ratio + excess * dimension / 2.0), math.sqrt(ratio) + excess * math.sqrt(dimension))


def rounded_norm_squared(norm: float, dimension: int) -> int:
    """Return what the squared L2 norm of a vector of at most this norm, in steps, may be once it is rounded.

    The discrete Gaussian paper's bound for conditional randomised rounding, with beta = exp(-1/2): rounding that is
    drawn again above it comes to an end soon.
    """
    root = math.sqrt(dimension)
    likely = norm**2 + dimension / 4.0 + (norm + root / 2.0)
    return math.ceil(min(likely, (norm + root) ** 2))


def most_rotated(norm: float, dimension: int) -> int:
    """Return the largest magnitude of a rotated and rounded value that is let through, in steps.

    Random signs and a Hadamard transform of 2^k values leave a vector of this norm no larger value but with a chance of
    2 exp(-32) for each; what is larger is cut, which makes norms smaller and costs accuracy alone.
    """
    passed = 1 << (dimension.bit_length() - 1)
    return math.ceil(min(norm, _SPREAD * norm / math.sqrt(passed))) + 1


def log2_tail(distribution: Distribution, variance: int, beyond: int) -> float:
    """Return log2 of a bound of the chance that a draw is larger in magnitude than ``beyond``, at least 0.

    Chernoff's bound: of the discrete Gaussian by its being subgaussian (Canonne, Kamath and Steinke 2020), of Skellam
    by its own moment generating function, exp(variance (cosh t - 1)).
    """
    first = beyond + 1.0
    if distribution == "skellam":
        ratio = first / variance
        # variance (cosh t - 1) - t first at sinh t = ratio, written so that nothing cancels.
        exponent = variance * (ratio**2 / (math.hypot(1.0, ratio) + 1.0) - ratio * math.asinh(ratio))
    else:
        exponent = -(first**2) / (2.0 * variance)
    return 1.0 + exponent / math.log(2.0)
