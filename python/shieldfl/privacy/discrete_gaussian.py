"""Clipping and discrete Gaussian noise on a grid: the Gaussian mechanism without floating-point gaps.

Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy" (2020): integer noise drawn exactly
gives the concentrated differential privacy of the continuous Gaussian with the same standard deviation and
sensitivity (their theorem 4), and the proof speaks of the very numbers that leave the client.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import as_real, as_threads, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.privacy import draws
from shieldfl.privacy.mechanisms import FloatVector, as_float_vector, check_norm

__all__ = ["discrete_gaussian_noise", "float32_grid", "grid_variance"]

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

    The rounded vector's exact norm is at most ``norm``: values are clipped to ``norm`` less sqrt(n) half steps,
    which is the most that rounding n values can add. Choose ``fraction_bits`` so that the step is well below the
    standard deviation, where the discrete Gaussian is as good as the continuous one.

    The result is float64 because float32 holds multiples of the step only up to 2^24 steps. A client that sends
    float32 converts it: what is done to a private output without looking at the data keeps its privacy, so that
    rounding costs precision only.

    The time it takes depends on the noise. Do not let others measure it.

    What is not named here is as for :func:`shieldfl.privacy.mechanisms.clip_and_noise`.

    Parameters
    ----------
    norm : float
        Clipping norm C: at least 2^-100, at most 2^50 steps, and at least sqrt(n) steps.
    standard_deviation : float
        In the unit of the vector, from 2^-12 to just below 2^24 steps. See :func:`grid_variance` for its rounding.
    fraction_bits : int
        Binary digits after the point, 0 to 150.

    Returns
    -------
    noised : ndarray of float64, shape (n,)
        Exact multiples of 2^-fraction_bits.
    was_clipped : bool
        Whether the input was longer than ``norm`` less the allowance for rounding.

    Raises
    ------
    ParameterError
        If a number is outside the stated bounds.
    """
    values = as_float_vector(vector)
    check_norm(norm)
    variance = grid_variance(standard_deviation, fraction_bits)
    return draws.clip_and_add_discrete_gaussian_vartime(
        values, norm, int(fraction_bits), variance.numerator, variance.denominator, as_threads(threads)
    )


def float32_grid(standard_deviation: float) -> int:
    """Return the fraction bits of a grid for noise that is sent as float32: 2^20 to 2^21 steps to the deviation.

    Float32 holds every multiple of the step up to 2^24 steps, which is eight deviations or more. Beyond, its own
    spacing is a multiple of the step, so that rounding to float32 does not leave the grid there either. The grid
    depends on the standard deviation alone, never on a vector.

    Raises
    ------
    ParameterError
        If the standard deviation is not within 2^-129 and 2^21: at other ones no grid has fraction bits of 0 or
        more and a step that float32 holds.
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

    It is rounded up to a fraction whose numerator is at most 2^48 and whose denominator is a power of two up to
    2^24. From one step of standard deviation on, that adds less than 2^-23 of it.

    Raises
    ------
    ParameterError
        If a number is outside the bounds that :func:`discrete_gaussian_noise` states.
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
