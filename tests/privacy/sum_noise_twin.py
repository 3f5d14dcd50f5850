"""What sums of discrete noise cost, by brute force: whole distributions, summed up value by value.

Slow, for a few steps and values, and written from the definitions alone: a discrete Gaussian by its density, Skellam as
the difference of two Poisson variables, sums by convolution, divergences and delta by their sums.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, logsumexp

Array = NDArray[np.float64]


def share(distribution: str, variance: int, most: int) -> Array:
    """Probabilities of -most to most; the tails beyond are cut, and must be nothing."""
    at = np.arange(-most, most + 1)
    if distribution == "discrete-gaussian":
        density = np.exp(-(at.astype(float) ** 2) / (2.0 * variance))
        return density / density.sum()
    arrivals = np.arange(4 * most + 1)
    poisson = np.exp(arrivals * math.log(variance / 2) - variance / 2 - gammaln(arrivals + 1))
    middle = 4 * most
    return np.convolve(poisson, poisson[::-1])[middle - most : middle + most + 1]


@functools.cache
def summed(distribution: str, variance: int, clients: int) -> Array:
    """Probabilities of the sum of so many shares, around 0."""
    most = math.ceil(25 * math.sqrt(variance)) + 25
    one = share(distribution, variance, most)
    return functools.reduce(np.convolve, [one] * clients)


def shifted(noise: Array, shift: int) -> tuple[Array, Array]:
    """Probabilities of noise on ``shift`` and on 0, of the same values."""
    return np.pad(noise, (abs(shift) + shift, abs(shift) - shift)), np.pad(noise, abs(shift))


def divergence(noise: Array, shifts: Sequence[int], order: float) -> float:
    """Rényi divergence of independent noise on a vector from noise on 0: that of its values, added up."""
    return sum(_divergence_of_value(noise, one, order) for one in shifts)


def _divergence_of_value(noise: Array, shift: int, order: float) -> float:
    there, gone = shifted(noise, shift)
    both = (there > 1e-290) & (gone > 1e-290)
    logs = order * np.log(there[both]) + (1.0 - order) * np.log(gone[both])
    return float(logsumexp(logs)) / (order - 1.0)


def delta_at(noise: Array, shifts: Sequence[int], epsilon: float) -> float:
    """The least delta at an epsilon, of both directions: how much more likely than exp(epsilon) times an output is."""
    pairs = [shifted(noise, one) for one in shifts]
    there = functools.reduce(np.multiply.outer, [one for one, _ in pairs]).ravel()
    gone = functools.reduce(np.multiply.outer, [other for _, other in pairs]).ravel()
    return excess(there, gone, epsilon)


def excess(there: Array, gone: Array, epsilon: float) -> float:
    """The hockey-stick divergence of two distributions, the larger of both directions."""
    return max(
        float(np.maximum(one - math.exp(epsilon) * other, 0.0).sum())
        for one, other in ((there, gone), (gone, there))
    )


def rounded(vector: Sequence[float], norm_bound_squared: int) -> dict[tuple[int, ...], float]:
    """The distribution of randomised rounding that is drawn again above a norm: all integers next to the values."""
    found: dict[tuple[int, ...], float] = {}
    for ups in itertools.product((0, 1), repeat=len(vector)):
        at = tuple(math.floor(one) + up for one, up in zip(vector, ups, strict=True))
        if sum(one**2 for one in at) <= norm_bound_squared:
            parts = (one - math.floor(one) for one in vector)
            found[at] = math.prod(part if up else 1.0 - part for part, up in zip(parts, ups, strict=True))
    return found


def of_drawn(noise: Array, contributions: Sequence[Sequence[int]], drawn: int) -> Array:
    """The distribution, as a vector, of independent noise on the sum of so many of these vectors, all sets alike.

    Values beyond those of the noise wrap around, so that nothing is lost: it must be nothing there.
    """
    dimension = len(contributions[0])
    alone = functools.reduce(np.multiply.outer, [noise] * dimension)
    sets = list(itertools.combinations(contributions, drawn))
    axes = tuple(range(dimension))
    shifts = (np.sum(one, axis=0) for one in sets)
    return sum(np.roll(alone, tuple(shift), axes) for shift in shifts).ravel() / len(sets)


def divergence_of(one: Array, other: Array, order: float) -> float:
    """Rényi divergence of a distribution from another."""
    both = (one > 1e-290) & (other > 1e-290)
    logs = order * np.log(one[both]) + (1.0 - order) * np.log(other[both])
    return float(logsumexp(logs)) / (order - 1.0)
