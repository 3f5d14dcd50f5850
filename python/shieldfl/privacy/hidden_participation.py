"""What a sum of noised contributions tells of one client where nobody knows whose they are: amplification by sampling.

How the theorems below are put together is ours, and awaits outside review.

K of N clients are drawn, all sets of K alike; K is known. The sum has the same noise whoever is in it, and neighbours
are two runs in which one client's contribution is there wherever it was drawn, or zeros are in its place. With
g = K / N, and by joint convexity for the worst of clients that may stand in the place of that one, what is seen is

    P = (1 - g) N_j + g N_x    or    Q = (1 - g) N_j + g N_0,

where N_v is the noise on v: another client's contribution j, its own x, or 0. Of the hockey-stick divergence
H_s(P || Q), the integral of (P - s Q)+, Balle, Barthe and Gaboardi ("Privacy Amplification by Subsampling: Tight
Analyses via Couplings and Divergences", NeurIPS 2018, theorem 2, advanced joint convexity) prove, with
t = 1 + (s - 1) / g and b = s / t, for s >= 1,

    H_s(P || Q) = g H_t(N_x || (1 - b) N_j + b N_0) <= g ((1 - b) H_t(N_x || N_j) + b H_t(N_x || N_0)),

and the same with x and 0 exchanged. x and j, of one norm each, differ by twice the norm. What every convex function is,
a line and an integral of (u - s)+ and (s - u)+ by its second derivative, makes of u^a

    exp((a - 1) D_a(P || Q)) = 1 + a (a - 1) (integral from 1 of s^(a-2) H_s(P || Q) + s^(-a-1) H_s(Q || P) ds),

and of D_a(Q || P) no more than the bound that follows. So nothing is needed of the noise but bounds of its own Rényi
divergences, for one norm and for two: a moment bounds a hockey-stick divergence (Markov's inequality), the second one
more tightly near t = 1 (that of Cauchy and Schwarz). The integral is an upper sum on a grid.

Rounds add up where what a client sends depends on the models before and its data alone. A client that keeps something
of its own from the rounds that it was in would tell, by and by, which these were.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["divergences_if_hidden"]

_STEP = 0.02
"""Of the logarithm of t - 1 on the grid: what is above an integral is no more than this by so much of t."""
_LEAST_BEYOND, _MOST_BEYOND = 1e-9, 1e17
"""t - 1 at the grid's second point and its last; what is beyond is in closed form."""

_Vector = NDArray[np.float64]


def divergences_if_hidden(orders: _Vector, once: _Vector, twice: _Vector, share: float) -> _Vector:
    """Return upper bounds (m,) of the Rényi divergences P from Q and Q from P at each order.

    Parameters
    ----------
    orders : (m,), above 1, ascending, 2 among them.
    once : (m,), bounds of the noise's own divergences for vectors that differ by one contribution.
    twice : (m,), for vectors that differ by two.
    share : g, from 0 to 1.
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
    # The mean of (u - t)^2 is chi^2 + (t - 1)^2, and (u - t)+ half of |u - t| + u - t: written so that nothing cancels.
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
