"""Clipping and Gaussian noise, continuous and discrete: what is done to a vector before it leaves a client.

Source: SelectiveShield, eq. 20 and 21. The noise comes from the core's cryptographic generator, never from a
seeded one. Like every float implementation of the Gaussian mechanism the continuous one carries the caveat of
Mironov (2012): the low-order bits of a float are not the real number that the proof speaks of. The discrete
one has no such gap, and takes some forty times as long.

A client's share of a sum's noise is drawn from tables of discrete distributions.

The discrete Gaussian with parameter σ² gives y with probability proportional to exp(-y² / (2 σ²)) (Canonne,
Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", 2020, definition 1). The Skellam
distribution with variance v is the difference of two independent Poisson variables of mean v/2: y has
probability exp(-v) I_|y|(v), with the modified Bessel function of the first kind (Agarwal, Kairouz and Liu,
"The Skellam Mechanism for Differentially Private Federated Learning", 2021, section 3).

**How near a table is.** A draw is a magnitude with a uniform sign, and each magnitude has a probability that
is a whole multiple of 2^-(128 + L), with 2^L buckets of the alias method (cpp/noise/noise_table.h). Write w_m
for the probability of m over that of 0: the true weights, and ŵ_m for those computed, which are integers in
units of u = 2^-256, with |ŵ_m - w_m| <= ε for each m; Σ for the sum over all integers y from -most to most of
ŵ_|y|. The total variation distance of a draw from the true distribution is at most the sum of three parts,
each computed in fractions:

1. *The tail that is cut*, P(|y| > most). For both distributions the ratio w_(m+1) / w_m is below 1 and falls
   with m: for the Gaussian it is exp(-(2 m + 1) / (2 σ²)); for ratios of Bessel functions see Amos,
   "Computation of modified Bessel functions and their ratios" (1974). So a geometric series bounds the tail,
   by 2 w_(most+1) / (1 - w_(most+1) / w_most) over the sum of all weights. ``most`` is the least for which
   that is at most 2^-121.
2. *The weights*: two distributions whose weights differ by E in all, and have a sum of at least Σ, differ by
    E / Σ.
3. *The multiples*: every probability is rounded down to one and what is left goes to 0, in all less than
  2^-128.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from dataclasses import dataclass
from decimal import Context
from fractions import Fraction
from functools import lru_cache
from statistics import median
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import (
    FloatVector,
    as_bytes,
    as_count,
    as_positive,
    as_real,
    as_threads,
    as_unsigned,
    as_vector,
)
from shieldfl.errors import ParameterError
from shieldfl.privacy.events import Distribution
from shieldfl.stateful import refuse_unless

_LEAST_NORM = 2.0**-100
"""Smallest clipping norm: below it, scaled values would leave the range of normal float32."""

# Float32 ends at 2^128; 2^120 leaves room for draws of 200 deviations.
_MOST_DEVIATION = 2.0**120


def clip_and_noise(
    vector: FloatVector, norm: float, standard_deviation: float, *, threads: int | None = None
) -> tuple[FloatVector, float, bool]:
    """Scale a vector (n,) down to an L2 norm of at most ``norm`` (eq. 20), add noise, round to float32.

    The exact norm of a vector that was scaled never exceeds ``norm``: the scale is taken a hair smaller to
    make up for float32 rounding, since the privacy proof has no tolerance. Whether to scale is decided in
    float64.

    Returns new values, float32 (n,), the norm that the vector had, in float64, and whether it was longer than
    ``norm``; these two are data: never to be uploaded. ``norm`` is finite and at least 2^-100. Raises
    ParameterError for a norm or deviation out of range, ArrayTypeError for what is no float32 vector,
    RangeError, with the first position, for NaN or infinity.
    """
    values = as_vector(vector, (np.float32,), "the vector")
    check_norm(norm)
    _check_deviation(standard_deviation)
    return _core.clip_and_add_gaussian(values, norm, standard_deviation, as_threads(threads))


_WINDOW = 10


class AdaptiveClip:
    """A clipping norm that follows a client's own updates: the median of their last ten norms.

    This is NOT private: the norm is computed from the client's data without noise, and the noise that is
    added is scaled by it, so what leaves the client depends on the data in a way that no accountant here
    charges for. ``initial_norm`` is used until something was observed, and while the median is below 2^-100.
    """

    changes: ClassVar = {"_norms": list[float]}

    def __init__(self, initial_norm: float) -> None:
        self._initial_norm = initial_norm
        self._norms: list[float] = []

    def check_changed(self) -> None:
        refuse_unless(all(0.0 <= norm < math.inf for norm in self._norms))

    def norm(self) -> float:
        middle = median(self._norms[-_WINDOW:]) if self._norms else 0.0
        return middle if middle >= _LEAST_NORM else self._initial_norm

    def observe(self, norm: float) -> None:
        self._norms = [*self._norms, norm][-_WINDOW:]


def gaussian_noise(
    vector: FloatVector, standard_deviation: float, *, threads: int | None = None
) -> FloatVector:
    """Return the values with independent N(0, standard_deviation²) added (SelectiveShield, eq. 21).

    Errors are those of :func:`clip_and_noise`; NaN and infinity are not looked for.
    """
    _check_deviation(standard_deviation)
    noised: FloatVector = as_vector(vector, (np.float32,), "the vector").copy()
    if standard_deviation > 0 and noised.size > 0:
        _core.add_gaussian(noised, standard_deviation, as_threads(threads))
    return noised


def check_norm(norm: float) -> None:
    """Raise ParameterError unless ``norm`` can be a clipping norm."""
    if as_positive(norm, "the clipping norm") < _LEAST_NORM:
        raise ParameterError("the clipping norm must be at least 2^-100")


def _check_deviation(standard_deviation: float) -> None:
    standard_deviation = as_real(standard_deviation, "the standard deviation")
    if not 0 <= standard_deviation <= _MOST_DEVIATION:
        raise ParameterError(
            "the standard deviation must not be negative, and at most 2^120 for float32 to hold"
        )


_ROOTS = 16
STEPS_PER_OCTAVE = 1 << _ROOTS
"""Number of steps of the exponent that double a norm."""
MOST_EXPONENT = 16 * STEPS_PER_OCTAVE
"""Largest magnitude of an exponent: a norm is within 2^-16 and 2^16 times the first."""
LEAST_FIRST_NORM, MOST_FIRST_NORM = 2.0**-84, 2.0**84
"""Bounds of the first norm: all norms that follow from it can be clipped to."""
_LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class MovingNorm:
    """A norm that moves from that of the first round, above 0, by an exponent: the same for everybody."""

    first_norm: float

    def norm_at(self, exponent: int) -> float:
        octaves, part = divmod(exponent, STEPS_PER_OCTAVE)
        factor, root = 1.0, 2.0
        for place in reversed(range(_ROOTS)):
            root = math.sqrt(root)
            if part >> place & 1:
                factor *= root
        return math.ldexp(self.first_norm * factor, octaves)

    def raised(self, exponent: int, octaves: float) -> int:
        """Return the exponent of a norm that is so many octaves higher, or lower if that is below 0."""
        higher = round(min(max(octaves * STEPS_PER_OCTAVE, -2.0 * MOST_EXPONENT), 2.0 * MOST_EXPONENT))
        return min(max(exponent + higher, -MOST_EXPONENT), MOST_EXPONENT)


@dataclass(frozen=True)
class ClipRule(MovingNorm):
    """How the clipping norm moves from that of the first round to that of each later one."""

    quantile: float
    """gamma, the share of clients to be within C; the first norm is C_0."""
    learning_rate: float
    """eta."""

    def moved(self, exponent: int, share_within: float) -> int:
        """Return the exponent after a round, from the share of its clients that were within C by its sum."""
        share = min(max(share_within, 0.0), 1.0)
        return self.raised(exponent, -self.learning_rate * (share - self.quantile) * _LOG2_E)


_MOST_NUMERATOR = 2**48
_LOG2_MOST_DENOMINATOR = 24
_MOST_FRACTION_BITS = 150
_LOG2_FLOAT32_GRID_STEPS = 20
_FLOAT32_LEAST_EXPONENT = -149


def discrete_gaussian_noise(
    vector: FloatVector,
    norm: float,
    standard_deviation: float,
    fraction_bits: int,
    *,
    threads: int | None = None,
) -> tuple[NDArray[np.float64], float, bool]:
    """Clip, round to multiples of 2^-fraction_bits, and add discrete Gaussian noise.

    Returns float64 (n,), and what else :func:`clip_and_noise` does. The rounded vector's exact norm is at
    most ``norm``: values are clipped to ``norm`` less sqrt(n) half steps, which is the most that rounding n
    values can add. Choose ``fraction_bits``, 0 to 150, so that the step is well below the standard deviation,
    where the discrete Gaussian is as good as the continuous one. ``norm`` is at most 2^50 steps, and at least
    sqrt(n); the deviation is from 2^-12 to just below 2^24 steps, and rounded as :func:`grid_variance` says.

    Float32 holds multiples of the step only up to 2^24 steps. A client that sends float32 converts: what is
    done to a private output without looking at the data keeps its privacy. The time it takes depends on the
    noise: do not let others measure it. Raises ParameterError for numbers outside these bounds, and as
    :func:`clip_and_noise` does.
    """
    values = as_vector(vector, (np.float32,), "the vector")
    check_norm(norm)
    variance = grid_variance(standard_deviation, fraction_bits)
    return _core.clip_and_add_discrete_gaussian_vartime(
        values, norm, int(fraction_bits), variance.numerator, variance.denominator, as_threads(threads)
    )


def float32_grid(standard_deviation: float) -> int:
    """Return the fraction bits of a grid for noise sent as float32: 2^20 to 2^21 steps to the deviation.

    Float32 holds every multiple of the step up to 2^24 steps, which is eight deviations or more. Beyond, its
    own spacing is a multiple of the step, so that rounding to float32 does not leave the grid there either.
    The grid depends on the deviation alone, never on a vector. Raises ParameterError for one that is not
    within 2^-129 and 2^21.
    """
    _, exponent = math.frexp(
        as_positive(standard_deviation, "the standard deviation")
    )  # 2^(exponent - 1) <= deviation < 2^exponent
    fraction_bits = _LOG2_FLOAT32_GRID_STEPS + 1 - exponent
    if not 0 <= fraction_bits <= -_FLOAT32_LEAST_EXPONENT:
        raise ParameterError(
            f"no grid of float32 fits a standard deviation of {standard_deviation:.3g}: "
            "it must be at least 2^-129 and below 2^21"
        )
    return fraction_bits


def grid_variance(standard_deviation: float, fraction_bits: int) -> Fraction:
    """Return the variance in squared steps that is drawn from: never less than asked for.

    It is rounded up to a fraction whose numerator is at most 2^48 and whose denominator is a power of two up
    to 2^24. From one step of deviation on, that adds less than 2^-23 of it. Raises ParameterError outside the
    bounds of :func:`discrete_gaussian_noise`.
    """
    bits = as_unsigned(fraction_bits, "fraction_bits")
    if bits > _MOST_FRACTION_BITS:
        raise ParameterError(f"fraction_bits must be at most {_MOST_FRACTION_BITS}")
    standard_deviation = as_positive(standard_deviation, "the standard deviation")
    exact = (Fraction(standard_deviation) * 2**bits) ** 2
    if exact < Fraction(1, 2**_LOG2_MOST_DENOMINATOR) or exact > _MOST_NUMERATOR:
        raise ParameterError(
            f"the standard deviation is {float(standard_deviation) * 2.0**bits:.3g} steps of the grid, "
            "expected 2^-12 to 2^24: choose fraction_bits accordingly"
        )
    denominator = 2**_LOG2_MOST_DENOMINATOR
    while math.ceil(exact * denominator) > _MOST_NUMERATOR:
        denominator //= 2
    return Fraction(math.ceil(exact * denominator), denominator)


def rotation_seed(session: bytes, round_number: int) -> bytes:
    """Return the seed of a round's rotation, 32 bytes: it follows from the session and the round.

    The session is drawn when the federation is set up, so nobody chooses a rotation. The seed is public, and
    matters to accuracy alone: a rotation spreads an update over its values, so that few bits hold each.
    """
    return hashlib.sha256(b"shieldfl rotation 1\0" + session + round_number.to_bytes(8, "little")).digest()


_LEAST_VARIANCE = Fraction(1, 128)
_MOST_VARIANCE = Fraction(2**28)
_MOST_TAIL = Fraction(1, 2**121)
_UNIT = 2**256
"""The weight 1, in units of weights."""
_LEAST_WEIGHT = _UNIT >> 130
"""Smallest weight that is needed, in units: the tail behind it is below the most that may be cut."""
_BUCKET = 2**128
_DIGITS = Context(prec=100)


_Weights = tuple[list[int], int]
"""ŵ and ε of the module's text, in units. Only the last weight is below the least that is needed."""


class NoiseTable(_core.NoiseTable):
    """A symmetric distribution on the integers, ready to be drawn from.

    It takes about a second at the largest variance, and the last few are remembered. ``most`` is the largest
    magnitude of a draw, ``log2_distance`` log2 of a draw's total variation distance from the true
    distribution, at most; ``high``, ``low`` and ``others`` are each bucket's threshold, in two words, and
    other magnitude. ``variance`` is σ² or v above, in squared steps. (The variance of a discrete Gaussian is
    slightly below its σ².)

    A table holds nothing secret. But the core reads it at addresses that depend on the noise: a program on
    the same machine that sees which lines of a cache a client's processor reads learns about the noise.
    """

    def __init__(self, distribution: Distribution, variance: Fraction) -> None:
        if not isinstance(variance, Fraction) or not _LEAST_VARIANCE <= variance <= _MOST_VARIANCE:
            raise ParameterError("a table's variance must be a Fraction from 1/128 to 2^28 squared steps")
        self.distribution: Distribution = distribution
        self.variance = variance
        weights_of = {"discrete-gaussian": _gaussian_weights, "skellam": _skellam_weights}[distribution]
        weights, error = weights_of(variance)
        candidates = range(1, len(weights) - 1)
        # The least magnitude that so little is beyond that it may be cut.
        found = bisect_left(candidates, True, key=lambda most: _tail((weights, error), most) <= _MOST_TAIL)
        self.most = candidates[found]
        kept = weights[: self.most + 1]
        distance = (
            _tail((weights, error), self.most)
            + Fraction((2 * self.most + 1) * error, _sum(kept))
            + Fraction(1, _BUCKET)
        )
        # Upwards, by more than the logarithm's own rounding.
        self.log2_distance = math.log2(math.ceil(distance * _UNIT)) - math.log2(_UNIT) + 2.0**-40
        self.high, self.low, self.others = _columns(kept)
        for column in (self.high, self.low, self.others):
            column.setflags(write=False)  # a table is remembered, and its next user gets the same
        super().__init__(self.high, self.low, self.others)


@lru_cache(maxsize=8)
def noise_table(distribution: Distribution, variance: Fraction) -> NoiseTable:
    """Make the table of this variance, from 1/128 to 2^28 squared steps."""
    return NoiseTable(distribution, variance)


def _gaussian_weights(variance: Fraction) -> _Weights:
    """Multiply up: w_(m+1) = w_m r_m and r_(m+1) = r_m q, from r_0 = exp(-1 / (2 σ²)) and q = exp(-1 / σ²).

    r_0 and q are off by 2 u at most: 100 correctly rounded digits of an exponential of at most 128 are nearer
    than u, and the rest is cut. All numbers are at most 1 and every product is rounded down by less than u.
    So r_m is off by 2 u + 3 m u at most, w_m by the sum of 3 j + 3 over j < m, times u, which is below 2 (m +
    1)² u.
    """
    exponents = (_DIGITS.divide(-variance.denominator, factor * variance.numerator) for factor in (2, 1))
    ratio, step = (int(_DIGITS.multiply(_DIGITS.exp(one), _UNIT)) for one in exponents)
    values = [_UNIT]
    while values[-1] >= _LEAST_WEIGHT:
        values.append(values[-1] * ratio // _UNIT)
        ratio = ratio * step // _UNIT
    return values, 2 * (len(values) + 1) ** 2


def _skellam_weights(variance: Fraction) -> _Weights:
    """Recur backwards: I_(k-1)(v) = I_(k+1)(v) + (2 k / v) I_k(v), from far out (Miller's algorithm).

    Let f be an exact solution that begins with f_K > 0 and f_(K+1) = r_K f_K for any r_K in [0, 1], and write
    r_k = f_(k+1) / f_k, and ρ_k for the true ratio, which is in [0, 1], too. Both obey r_(k-1) = 1 / (2 k / v
    + r_k), so that |r_(k-1) - ρ_(k-1)| = r_(k-1) ρ_(k-1) |r_k - ρ_k|. Multiplied up, |r_k - ρ_k| is f_K / f_k
    at most. As ρ_k >= 1 / (2 (k + 1) / v + 1), the relative error of r_k is at most η = (2 (M + 1) / v + 1)
    f_K / min f for all k < M, where M is the last weight's index and min f the least of f_0 to f_M; and that
    of f_k / f_0, a product of at most M ratios, is at most 2 M η where that is below 1.

    Rounding down a sum of positive terms makes it smaller by a part of 1 / min f' at most, where f' are all
    the rounded numbers. All is linear and positive, so f' is below f by a part of K / min f' at most, and
    f'_k / f'_0 off by twice that. Weights are at most 1, so that relative errors are absolute ones, too;
    dividing, and the product of the two errors, add less than 2 u.
    """
    reach = _far_out(float(variance))
    scaled, divisor = 2 * variance.denominator, variance.numerator
    here = _UNIT
    # About I_(K+1)(v) / I_K(v): the fixed point of its recurrence, which Amos (1974) shows to be near.
    further = int(here * (float(variance) / (reach + 1 + math.hypot(reach + 1, float(variance)))))
    values = [here]
    for k in range(reach, 0, -1):
        here, further = further + k * scaled * here // divisor, here
        values.append(here)
    smallest = min(values)
    values.reverse()
    first = values[0]
    count = next(k for k, value in enumerate(values) if value * _UNIT < _LEAST_WEIGHT * first)
    eta = (2 * (count + 1) / variance + 1) * Fraction(_UNIT, min(values[: count + 1]))
    relative = 2 * count * eta + Fraction(2 * reach, smallest)
    return [value * _UNIT // first for value in values[: count + 1]], math.ceil(relative * _UNIT) + 2


def _far_out(variance: float) -> int:
    """Return a k that the Skellam distribution exceeds with probability 2^-340 at most (Chernoff's bound)."""
    reach = 8
    while reach * math.asinh(reach / variance) - math.hypot(reach, variance) + variance < 340 * math.log(2):
        reach += reach // 8
    return reach


def _sum(values: list[int]) -> int:
    return 2 * sum(values) - values[0]


def _tail(weights: _Weights, most: int) -> Fraction:
    """Return an upper bound of P(|y| > most).

    The weights of magnitudes to ``most`` have a sum of at least one.
    """
    values, error = weights
    beyond, last = values[most + 1] + error, values[most] - error
    if beyond >= last:
        return Fraction(1)  # the weights are too inexact to tell
    part = _sum(values[: most + 1]) - (2 * most + 1) * error
    return Fraction(2 * beyond * last, (last - beyond) * part)


def _columns(values: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pair small probabilities with large ones.

    Source: Vose, "A linear algorithm for generating random numbers", 1991.

    All magnitudes together have 2^128 for each bucket. A bucket holds what is left of one magnitude and, for
    the rest, a part of another's.
    """
    buckets = 2 ** (len(values) - 1).bit_length()
    total, whole = _sum(values), buckets * _BUCKET
    parts = [2 * value * whole // total for value in values] + [0] * (buckets - len(values))
    parts[0] = whole - sum(parts[1:])
    left = list(parts)
    others = list(range(buckets))
    small = [m for m, part in enumerate(left) if part < _BUCKET]
    large = [m for m, part in enumerate(left) if part > _BUCKET]
    while small:
        first, second = small.pop(), large[-1]
        others[first] = second
        left[second] -= _BUCKET - left[first]
        if left[second] <= _BUCKET:
            large.pop()
            if left[second] < _BUCKET:
                small.append(second)
    thresholds = [0 if other == m else part for m, (part, other) in enumerate(zip(left, others, strict=True))]
    return (
        np.array([threshold >> 64 for threshold in thresholds], dtype=np.uint64),
        np.array([threshold % 2**64 for threshold in thresholds], dtype=np.uint64),
        np.array(others, dtype=np.uint32),
    )


def noise_share(
    update: FloatVector,
    *,
    clip_norm: float,
    steps_per_unit: float,
    rotation_seed: bytes,
    norm_bound_squared: int,
    most_rounded: int,
    most_sent: int,
    table: NoiseTable,
    threads: int | None = None,
) -> tuple[NDArray[np.int32], bool]:
    """Clip, rotate, scale and round an update (n,), and add a share of the noise: int32 (n,), in steps.

    Returns that, and whether the update was longer than its norm, which is data: never to be uploaded.

    The update is scaled down to an L2 norm of at most ``clip_norm`` (2^-100 to 2^100, and at most 2^28
    steps), rotated and multiplied by ``steps_per_unit``. Each value then goes to one of the two integers next
    to it at random, with the mean that it had, up to 2^-33. This is drawn again until the integers' squared
    norm, computed exactly, is at most ``norm_bound_squared``: so that bound, which privacy rests on, does not
    depend on the accuracy of floats. Then every value is brought within ±``most_rounded`` (at most 2^30),
    gets an independent draw from ``table``, and is brought within ±``most_sent`` (at most 2^31 - 1). All
    randomness is the core's, from a seed of the operating system's.

    ``rotation_seed`` is 32 bytes, public, the same for all clients of a total, and fresh for each round: the
    rotation does its work for updates that were chosen before it.

    Its duration and the lines of a cache that it reads depend on the update and the noise: do not let others
    on the same machine measure them.

    Raises ParameterError for numbers outside these bounds, ArrayTypeError for what is no float32 vector,
    RangeError for NaN or infinity, and where 1000 roundings were all longer than the bound.
    """
    values = as_vector(update, (np.float32,), "the update")
    check_norm(clip_norm)
    # Checked here: an error of the bindings would print the update.
    if not isinstance(table, NoiseTable):
        raise ParameterError(
            f"the table must be a NoiseTable, not {type(table).__name__}: make one by noise_table"
        )
    share, _, was_clipped, _ = _core.noise_share_vartime(
        values,
        clip_norm,
        as_real(steps_per_unit, "steps_per_unit"),
        as_bytes(rotation_seed, 32, "a rotation's seed"),
        as_unsigned(norm_bound_squared, "norm_bound_squared"),
        as_unsigned(most_rounded, "most_rounded", 31),
        as_unsigned(most_sent, "most_sent", 31),
        table,
        as_threads(threads),
    )
    return share, was_clipped


def mean_of_total(
    total: NDArray[np.float64],
    *,
    clients: int,
    steps_per_unit: float,
    rotation_seed: bytes,
    threads: int | None = None,
) -> NDArray[np.float64]:
    """Return the updates' mean (n,), in their unit, from a total (n,) of shares, in steps.

    Raises ArrayTypeError for anything but a float64 vector.
    """
    values = as_vector(total, (np.float64,), "the total")
    factor = 1.0 / (as_positive(steps_per_unit, "steps_per_unit") * as_count(clients, "clients"))
    return _core.rotate(
        values, as_bytes(rotation_seed, 32, "a rotation's seed"), True, factor, as_threads(threads)
    )
