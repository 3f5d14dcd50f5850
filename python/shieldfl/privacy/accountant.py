"""What noise costs: one accountant with one set of Rényi orders, Google's dp-accounting, for all methods.

It adds Rényi divergences, not whole distributions of the privacy loss. That covers discrete noise too: each
of its orders is proved to be bounded as the continuous one's (Canonne, Kamath and Steinke 2020, theorem
4), and noise of many multipliers costs no more time than noise of one. Theorems bound sums of discrete noise,
n honest clients' shares on vectors of integers whose difference has a bounded norm: those of Kairouz, Liu and
Steinke, "The Distributed Discrete Gaussian Mechanism for Federated Learning with Secure Aggregation"
(ICML 2021), and of Agarwal, Kairouz and Liu, "The Skellam Mechanism for Differentially Private Federated
Learning" (NeurIPS 2021). The price is a figure above the least that is true, never below:
docs/explanation/privacy-accounting.md says by how much.

There is no amplification by sampling of clients against who sees which take part: the aggregator, the key
authority and every client. For those who do not see it the opened sums of drawn clients have charges of their
own, by :mod:`shieldfl.privacy.accountant`. Samples of a client's data that nobody else sees do amplify.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import as_count, as_positive, as_real
from shieldfl.errors import ParameterError
from shieldfl.privacy.events import Noise, NoiseOfDrawnSum, NoiseOfSum

ORDERS = (
    *(1 + tenths / 10 for tenths in range(1, 100)),
    *range(11, 64),
    *(64, 76, 90, 107, 128, 152, 181, 215, 256, 304, 362, 431, 512, 609, 724, 861, 1024),
)
"""Rényi orders: each gives a valid bound, and the least bound counts.

Those below 2 serve an epsilon in the hundreds. The steps of a fifth at the end serve one far below 1: without
them none would show under ln(1/delta) / 62.
"""

_STEP = 0.02
"""Step of the logarithm of t - 1 on the grid: it bounds how far sums are above their integrals."""
_LEAST_BEYOND, _MOST_BEYOND = 1e-9, 1e17
"""t - 1 at the grid's second point and its last; the rest is in closed form."""

_Vector = NDArray[np.float64]


def divergences_if_hidden(orders: _Vector, once: _Vector, twice: _Vector, share: float) -> _Vector:
    """Return upper bounds (m,) of the Rényi divergences P from Q and Q from P at each order.

    Orders ascend, 2 among them. ``once`` and ``twice`` (m,) bound the noise's own divergences for vectors
    that differ by one contribution, and by two; ``share`` is g, from 0 to 1.
    """
    if share >= 1.0:
        return once
    exponents = np.arange(np.log(_LEAST_BEYOND), np.log(_MOST_BEYOND), _STEP)
    beyond = np.concatenate([[0.0], np.exp(exponents)])
    near, far = (_log_hockey_sticks(orders, own, beyond) for own in (once, twice))
    near = np.minimum(near, far)  # both bound what differs by one
    # On each interval: divergences fall with t, and the weight of the far ones grows.
    left, right = beyond[:-1], beyond[1:]
    of_far = (1.0 - share) * right / (1.0 + right)
    mixed = np.logaddexp(np.log(of_far) + far[:-1], np.log1p(-of_far) + near[:-1])
    log_width = np.log(right - left)
    low, high = np.log1p(share * left), np.log1p(share * right)
    found = np.empty_like(orders)
    for place, order in enumerate(orders):
        there = (order - 2.0) * (high if order > 2.0 else low) + mixed
        back = (-order - 1.0) * low + near[:-1]
        inside = np.logaddexp.reduce(np.logaddexp(there, back) + log_width)
        tail = np.log(2.0) + _log_tail(orders, twice, order, float(beyond[-1]))
        log_sum = 2.0 * np.log(share) + np.log(order * (order - 1.0)) + np.logaddexp(inside, tail)
        found[place] = np.logaddexp(0.0, log_sum) / (order - 1.0)
    # Mixing never adds to a divergence.
    return np.minimum(found, once)


def _log_markov(orders: _Vector, divergences: _Vector) -> _Vector:
    """Return the logarithms (m,) of c, where a hockey-stick divergence is at most c t^(1 - order).

    For (u - t)+ is at most u^a t^(1 - a) (a - 1)^(a - 1) / a^a, and the mean of u^a is exp((a - 1) D_a).
    """
    less = orders - 1.0
    return np.asarray(less * divergences + less * np.log(less) - orders * np.log(orders))


def _log_hockey_sticks(orders: _Vector, divergences: _Vector, beyond: _Vector) -> _Vector:
    """Return bounds of the logarithms of H_t at each t = 1 + ``beyond``, which fall with t."""
    constants = _log_markov(orders, divergences)
    found = np.min(constants[:, None] - (orders - 1.0)[:, None] * np.log1p(beyond), axis=0)
    # The mean of (u - t)^2 is chi^2 + (t - 1)^2, and (u - t)+ half of |u - t| + u - t: written so that
    # nothing cancels.
    with np.errstate(over="ignore"):
        squared = float(np.expm1(divergences[orders == 2.0][0]))
        if np.isfinite(squared) and squared > 0.0:
            least = np.log(squared / 2.0) - np.log(np.hypot(np.sqrt(squared), beyond) + beyond)
            found = np.minimum(found, least)
    return np.minimum.accumulate(np.minimum(found, 0.0))


def _log_tail(orders: _Vector, divergences: _Vector, order: float, start: float) -> float:
    """Return the logarithm of a bound of the integral of t^max(order - 2, 0) H_t from 1 + ``start`` on.

    s is at most t, and infinite where no order above is known.
    """
    power = max(order - 2.0, 0.0) + 2.0
    above = orders > power
    if not above.any():
        return float("inf")
    ends = _log_markov(orders, divergences) - (orders - power) * np.log1p(start)
    return float(np.min(ends[above] - np.log(orders[above] - power)))


def divergences_of_sum(noise: NoiseOfSum, times: int = 1, orders: tuple[float, ...] = ORDERS) -> _Vector:
    """Return an upper bound of the Rényi divergence at each order (m,) of one sum with either of two vectors.

    The vectors differ by so many ``times`` what those of neighbouring runs do.
    """
    alphas = np.asarray(orders, dtype=np.float64)
    norm_squared = (times * noise.contributions_apart) ** 2 * noise.norm_bound_squared
    if noise.distribution == "skellam":
        variance = noise.honest_clients * noise.share_variance
        return _skellam_divergences(alphas, variance, norm_squared, noise.dimension)
    return alphas / 2.0 * _concentrated(noise, norm_squared) ** 2


def _skellam_divergences(alphas: _Vector, variance: int, norm_squared: int, dimension: int) -> _Vector:
    """The Skellam paper's bound for vectors, which is of whole orders, and lines between them.

    (alpha - 1) times the divergence is convex in alpha and 0 at 1 (van Erven and Harremoës 2014), so that the
    line between two whole orders bounds it.
    """
    # Of integers no magnitude is above its square.
    summed = min(math.sqrt(dimension * norm_squared), float(norm_squared))

    def scaled(whole: _Vector) -> _Vector:
        gaussian = whole * norm_squared / (2.0 * variance)
        first = ((2.0 * whole - 1.0) * norm_squared + 6.0 * summed) / (4.0 * variance**2)
        second = 3.0 * summed / (2.0 * variance)
        bound: _Vector = (whole - 1.0) * (gaussian + np.minimum(first, second))
        return bound

    low = np.floor(alphas)
    part = alphas - low
    between: _Vector = ((1.0 - part) * scaled(low) + part * scaled(low + 1.0)) / (alphas - 1.0)
    return between


def _concentrated(noise: NoiseOfSum, norm_squared: int) -> float:
    """The discrete Gaussian paper's theorem on sums: they are (eps^2 / 2)-concentrated private; return eps.

    A sum of discrete Gaussians is none itself; ``excess`` is by how much its logarithm may be off.
    """
    excess, clients, dimension = 0.0, noise.honest_clients, noise.dimension
    if clients > 1:
        # The first term of the paper's sum over k = 1 to clients - 1, and the second for each one after it.
        rate = 2.0 * math.pi**2 * noise.share_variance
        excess = 10.0 * (math.exp(-rate / 2.0) + (clients - 2) * math.exp(-rate * 2.0 / 3.0))
    ratio = norm_squared / (clients * noise.share_variance)
    return min(math.sqrt(ratio + excess * dimension / 2.0), math.sqrt(ratio) + excess * math.sqrt(dimension))


Charge = Noise | NoiseOfSum | NoiseOfDrawnSum

_MOST_MULTIPLIER = 1e6
_SHARE_OF_DISTANCE = 2.0**-10
"""Share of delta that is kept for draws which are not quite of the true distribution."""


def epsilon_of(charges: Mapping[Charge, int], delta: float) -> float:
    """Return the epsilon of releases with such noise together, as often as ``charges`` says; 0 for none.

    Every release may depend on all before it. Raises ParameterError for a delta outside (0, 1).

    Where draws are off the true distribution by a distance D in all, what holds for the true one at delta'
    holds for them at delta' + (1 + exp(epsilon)) D: by D for the one run and by exp(epsilon) D for its
    neighbour. A thousandth of delta is kept for that; where it is not enough, epsilon is infinite.
    """
    _check_delta(delta)
    total = sum(count * noise.steps * _divergences_of(noise) for noise, count in charges.items())
    if np.ndim(total) == 0:
        return 0.0
    distance = sum(
        count * 2.0**noise.log2_distance for noise, count in charges.items() if not isinstance(noise, Noise)
    )
    if distance == 0.0:
        return float(_library().rdp.compute_epsilon(ORDERS, total, delta)[0])
    kept = delta * _SHARE_OF_DISTANCE
    if kept == 0.0:
        return math.inf
    epsilon = float(_library().rdp.compute_epsilon(ORDERS, total, delta - kept)[0])
    return epsilon if math.log(distance) + float(np.logaddexp(0.0, epsilon)) <= math.log(kept) else math.inf


@lru_cache(maxsize=4096)
def _divergences_of(noise: Charge) -> _Vector:
    """Return a charge's Rényi divergences, by order.

    A drawn sum takes a tenth of a second: each share of the clients is computed once.
    """
    if isinstance(noise, Noise):
        return _divergences(noise.multiplier, noise.sample_rate)
    if isinstance(noise, NoiseOfSum):
        return divergences_of_sum(noise)
    once, twice = (divergences_of_sum(noise.noise, times) for times in (1, 2))
    return divergences_if_hidden(np.asarray(ORDERS), once, twice, noise.drawn / noise.clients)


def noise_multiplier_for(epsilon: float, delta: float, rounds: int) -> float:
    """Find the least σ, the same in every round, that keeps ``rounds`` releases within (ε, δ).

    It spends ε to a part in ten thousand, and no more. Raises ParameterError for an argument out of range,
    and where no multiplier up to 10^6 is enough.
    """
    _check_target(epsilon, delta)
    rounds = as_count(rounds, "rounds")
    dp = _library()
    # Enough if all orders could be tried: ε = ρ + 2 √(ρ ln 1/δ) with ρ = T / 2σ², by concentrated
    # differential privacy.
    log_inverse = -math.log(delta)
    enough = math.sqrt(rounds / 2) * (math.sqrt(log_inverse + epsilon) + math.sqrt(log_inverse)) / epsilon
    enough = min(enough, 1e300)  # infinite for the least of all ε, which none up to 10^6 reaches
    try:
        multiplier = dp.calibrate_dp_mechanism(
            lambda: dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_SPECIAL),
            lambda sigma: dp.SelfComposedDpEvent(dp.GaussianDpEvent(sigma), rounds),
            epsilon,
            delta,
            dp.LowerEndpointAndGuess(enough * 1e-3, enough),
            tol=enough * 1e-6,
        )
    except (dp.mechanism_calibration.NoBracketIntervalFoundError, OverflowError):
        multiplier = math.inf
    if not multiplier <= _MOST_MULTIPLIER:
        raise ParameterError(
            f"no noise multiplier reaches epsilon {epsilon:g} at delta {delta:g} over {rounds} rounds: "
            "allow a larger epsilon or fewer rounds"
        )
    return float(multiplier)


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return σ that makes one release (ε, δ)-private, as SenseCrypt's appendix G has it.

    Up to ε = 1 that is √(2 ln(1.25/δ)) / ε (Dwork and Roth 2014, theorem A.1), which is proved there and more
    than enough. Above 1 that formula falls short, and the accountant decides. Raises as
    :func:`noise_multiplier_for`.
    """
    _check_target(epsilon, delta)
    if epsilon > 1.0:
        # More than enough for 1 is enough for more.
        return min(noise_multiplier_for(epsilon, delta, 1), gaussian_noise_multiplier(1.0, delta))
    return math.sqrt(2.0 * math.log(1.25 / delta)) / epsilon


@cache
def _library() -> Any:
    # Takes seconds: runs without noise never load it.
    import dp_accounting

    # It warns of orders at which a series does not converge; _divergences has a bound for them.
    logging.getLogger("absl").addFilter(lambda record: "Excluding this order" not in str(record.msg))
    return dp_accounting


@lru_cache(maxsize=4096)
def _divergences(multiplier: float, sample_rate: float) -> _Vector:
    """Return one step's Rényi divergences, by order: of a unit with a contribution from one that is zero.

    A tenth of a second and more under sampling: too long for every client after every round.
    """
    whole = np.asarray(ORDERS) / 2.0 / multiplier / multiplier
    if sample_rate == 1.0:
        return whole
    dp = _library()
    accountant = dp.rdp.RdpAccountant(ORDERS, dp.NeighboringRelation.REPLACE_SPECIAL)
    try:
        accountant.compose(dp.PoissonSampledDpEvent(sample_rate, dp.GaussianDpEvent(multiplier)))
    except ArithmeticError:  # of a multiplier so small that a square of it is nothing
        return whole
    # Sampling never adds to a divergence, so the whole is a bound where rounding or a series left no number.
    sampled = accountant.rdp
    return np.where((sampled > 0.0) & (sampled < whole), sampled, whole)


def _check_target(epsilon: float, delta: float) -> None:
    as_positive(epsilon, "the target epsilon")
    _check_delta(delta)


def _check_delta(delta: float) -> None:
    if not 0.0 < as_real(delta, "delta") < 1.0:
        raise ParameterError("delta must lie strictly between 0 and 1")
