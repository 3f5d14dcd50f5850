"""Clipping and Gaussian noise, continuous and discrete: what is done to a vector before it leaves a client.

Source: SelectiveShield, eq. 20 and 21. The noise comes from the core's cryptographic generator, never from a
seeded one. Like every float implementation of the Gaussian mechanism the continuous one carries the caveat of Mironov
(2012): the low-order bits of a float are not the real number that the proof speaks of. The discrete one has no such
gap, and takes some forty times as long.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from shieldfl.array_view import as_count, as_real, as_threads, as_unsigned, as_vector
from shieldfl.errors import ParameterError
from shieldfl.privacy import draws
from shieldfl.stateful import refuse_unless

FloatVector = npt.NDArray[np.float32]

_LEAST_NORM = 2.0**-100

# Float32 ends at 2^128; 2^120 leaves room for draws of 200 deviations.
_MOST_DEVIATION = 2.0**120
"""Below it, scaled values would leave the range of normal float32."""


def clip_and_noise(
    vector: FloatVector, norm: float, standard_deviation: float, *, threads: int | None = None
) -> tuple[FloatVector, float, bool]:
    """Scale a vector (n,) down to an L2 norm of at most ``norm`` (eq. 20), and add noise before rounding to float32.

    The exact norm of a vector that was scaled never exceeds ``norm``: the scale is taken a hair smaller to make up for
    float32 rounding, since the privacy proof has no tolerance. Whether to scale is decided in float64.

    Returns new values, float32 (n,), the norm that the vector had, in float64, and whether it was longer than
    ``norm``; these two are data: never to be uploaded. ``norm`` is finite and at least 2^-100. Raises
    ParameterError for a norm or deviation out of range, ArrayTypeError for what is no float32 vector,
    RangeError, with the first position, for NaN or infinity.
    """
    values = as_vector(vector, (np.float32,), "the vector")
    check_norm(norm)
    _check_deviation(standard_deviation)
    return draws.clip_and_add_gaussian(values, norm, standard_deviation, as_threads(threads))


class AdaptiveClip:
    """A clipping norm that follows a client's own updates: the median of their last ``window`` norms.

    This is NOT private: the norm is computed from the client's data without noise, and the noise that is
    added is scaled by it, so what leaves the client depends on the data in a way that no accountant here
    charges for. ``initial_norm`` is used until something was observed, and while the median is below 2^-100.
    """

    changes: ClassVar = {"_norms": list[float]}

    def __init__(self, initial_norm: float, window: int = 10) -> None:
        if not (math.isfinite(initial_norm) and initial_norm > 0):
            raise ParameterError("the initial clipping norm must be positive and finite")
        self._initial_norm = float(initial_norm)
        self._window = as_count(window, "window")
        self._norms: list[float] = []

    def check_changed(self) -> None:
        refuse_unless(all(0.0 <= norm < math.inf for norm in self._norms))

    def norm(self) -> float:
        middle = median(self._norms[-self._window :]) if self._norms else 0.0
        return middle if middle >= _LEAST_NORM else self._initial_norm

    def observe(self, norm: float) -> None:
        if not (math.isfinite(norm) and norm >= 0):
            raise ParameterError("an observed norm must be finite and not negative")
        self._norms = [*self._norms, float(norm)][-self._window :]


def gaussian_noise(
    vector: FloatVector, standard_deviation: float, *, threads: int | None = None
) -> FloatVector:
    """Return the values with independent N(0, standard_deviation²) added (SelectiveShield, eq. 21).

    Errors are those of :func:`clip_and_noise`; NaN and infinity are not looked for.
    """
    _check_deviation(standard_deviation)
    noised: FloatVector = as_vector(vector, (np.float32,), "the vector").copy()
    if standard_deviation > 0 and noised.size > 0:
        draws.add_gaussian(noised, standard_deviation, as_threads(threads))
    return noised


def check_norm(norm: float) -> None:
    """Raise ParameterError unless ``norm`` can be a clipping norm."""
    norm = as_real(norm, "the clipping norm")
    if not (math.isfinite(norm) and norm >= _LEAST_NORM):
        raise ParameterError("the clipping norm must be positive and finite, and at least 2^-100")


def _check_deviation(standard_deviation: float) -> None:
    standard_deviation = as_real(standard_deviation, "the standard deviation")
    if not 0 <= standard_deviation <= _MOST_DEVIATION:
        raise ParameterError(
            "the standard deviation must not be negative, and at most 2^120 for float32 to hold"
        )


_ROOTS = 16
STEPS_PER_OCTAVE = 1 << _ROOTS
"""How many steps of the exponent double a norm."""
MOST_EXPONENT = 16 * STEPS_PER_OCTAVE
"""The largest magnitude of an exponent: a norm is within 2^-16 and 2^16 of the first."""
LEAST_FIRST_NORM, MOST_FIRST_NORM = 2.0**-84, 2.0**84
"""All norms that come of it can be clipped to."""
_LOG2_E = 1.4426950408889634


@dataclass(frozen=True)
class ClipRule:
    """From the norm of the first round to that of each later one."""

    first_norm: float
    """C_0, above 0; quantile is gamma, the share of clients to be within C, and learning_rate eta."""
    quantile: float
    learning_rate: float

    def norm_at(self, exponent: int) -> float:
        octaves, part = divmod(exponent, STEPS_PER_OCTAVE)
        factor, root = 1.0, 2.0
        for place in reversed(range(_ROOTS)):
            root = math.sqrt(root)
            if part >> place & 1:
                factor *= root
        return math.ldexp(self.first_norm * factor, octaves)

    def moved(self, exponent: int, share_within: float) -> int:
        """Return the exponent after a round of whose clients this share was within C, as its sum says."""
        share = min(max(share_within, 0.0), 1.0)
        steps = self.learning_rate * (share - self.quantile) * _LOG2_E * STEPS_PER_OCTAVE
        lower = round(min(max(steps, -2.0 * MOST_EXPONENT), 2.0 * MOST_EXPONENT))
        return min(max(exponent - lower, -MOST_EXPONENT), MOST_EXPONENT)


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
    return draws.clip_and_add_discrete_gaussian_vartime(
        values, norm, int(fraction_bits), variance.numerator, variance.denominator, as_threads(threads)
    )


def float32_grid(standard_deviation: float) -> int:
    """Return the fraction bits of a grid for noise sent as float32: 2^20 to 2^21 steps to the deviation.

    Float32 holds every multiple of the step up to 2^24 steps, which is eight deviations or more. Beyond, its
    own spacing is a multiple of the step, so that rounding to float32 does not leave the grid there either.
    The grid depends on the deviation alone, never on a vector. Raises ParameterError for one that is not
    within 2^-129 and 2^21.
    """
    if not (math.isfinite(standard_deviation) and standard_deviation > 0):
        raise ParameterError("the standard deviation must be positive and finite")
    _, exponent = math.frexp(standard_deviation)  # 2^(exponent - 1) <= deviation < 2^exponent
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
    standard_deviation = as_real(standard_deviation, "the standard deviation")
    if not (math.isfinite(standard_deviation) and standard_deviation > 0):
        raise ParameterError("the standard deviation must be positive and finite")
    exact = (Fraction(standard_deviation) * 2**bits) ** 2
    if exact < Fraction(1, 2**_LOG2_MOST_DENOMINATOR) or exact > _MOST_NUMERATOR:
        raise ParameterError(
            f"the standard deviation is {float(standard_deviation) * 2.0**bits:.3g} steps of the grid, expected"
            " 2^-12 to 2^24: choose fraction_bits accordingly"
        )
    denominator = 2**_LOG2_MOST_DENOMINATOR
    while math.ceil(exact * denominator) > _MOST_NUMERATOR:
        denominator //= 2
    return Fraction(math.ceil(exact * denominator), denominator)
