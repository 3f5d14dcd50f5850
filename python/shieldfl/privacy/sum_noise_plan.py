"""The plan of noise of which every client adds a share: on which grid, and in how many bits.

The steps are small enough that rounding costs little noise, and no smaller, since a sum of smaller ones takes more
bits. What is sent of each client has room for any draw, but for a chance that is charged. Sums, where a scheme lets
them, have room for what clients may come to together, which is far less than all their largest values: noise adds up
with the root of their number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import shieldfl._core as _core
from shieldfl.errors import ParameterError
from shieldfl.privacy.accountant import noise_multiplier_for
from shieldfl.privacy.discrete_sums import Distribution
from shieldfl.privacy.sum_noise import LOG2_LEFT_OUT, SumNoise

__all__ = ["fewest_honest", "multiplier_for", "planned_sum_noise"]

_MOST_VALUE_BITS = 31
"""What is sent is an int32, and a bit stays free for what is added to it."""
_LEAST_VARIANCE = 4
"""Of a share, in squared steps: from here on a sum of discrete Gaussians is as good as one, and rounding is not all."""
_MOST_VARIANCE = 2**28
_MOST_NORM = 2.0**28
"""What tables and rounding take, in squared steps and in steps."""
_MOST_INFLATION = 0.03
"""What rounding may add to the squared norm of an update, relative to it: 1.5 % of noise.

A bit more of each sum, some 6 % of what is sent, quarters it. As much noise is saved by 6 % more clients at 0.1.
"""
_LOG2_TOO_LARGE = -40.0
"""Of a sum of all values: the chance that one of them does not fit its bits, and opens wrongly. It costs no privacy."""
_LEAST_CLIP_NORM, _MOST_CLIP_NORM = 2.0**-100, 2.0**100
"""What clients can clip to."""
_LEAST_TRIED, _MOST_TRIED = 1e-30, 1e30
"""Noise multipliers beyond these fit no grid."""
_LEAST_LEFT = 2.0**-8
"""Of what a target epsilon allows, for updates beside their count: they then have 16 times the noise."""
_PRECISION = 1e-5
"""Of a noise multiplier that is found for an epsilon."""


def fewest_honest(min_clients: int, colluders: int) -> int:
    """Return how many clients of the smallest sum are honest. Raises ParameterError where none is."""
    if colluders >= min_clients:
        raise ParameterError(
            f"noise of a sum needs an honest client in it: with colluders = {colluders} take a min_clients of at least "
            f"{colluders + 1}, not {min_clients}"
        )
    return min_clients - colluders


def multiplier_for(
    epsilon: float,
    delta: float,
    rounds: int,
    planned: Callable[[float], SumNoise],
) -> float:
    """Find the least noise multiplier that keeps ``rounds`` opened sums within (epsilon, delta).

    ``planned`` returns the plan of a multiplier. It never spends more; less where a value takes a bit more from there
    on, with which there is less to round. Raises ParameterError for arguments out of range and where no noise is
    enough, or a count alone costs more.
    """

    def is_enough(multiplier: float) -> bool:
        return planned(multiplier).epsilon(rounds, delta) <= epsilon

    # What noise without a grid needs is nearly enough, and never more than enough.
    least = noise_multiplier_for(epsilon, delta, rounds)
    least *= planned(2.0 * least).charge.contributions_apart
    # What a count costs does not fall with more noise on updates, which has to make up for it.
    left = 1.0 - (least / planned(2.0 * least).count_multiplier) ** 2
    if left < _LEAST_LEFT:
        raise ParameterError(
            "the count of clients within the clipping norm has too little noise for epsilon "
            f"{epsilon:g} over {rounds} rounds, whatever updates have: raise clip_count_noise, or min_clients"
        )
    enough = 2.0 * least / math.sqrt(left)
    if not is_enough(enough):
        raise ParameterError(
            f"no noise of a sum reaches epsilon {epsilon:g} at delta {delta:g} over {rounds} rounds: above some tens "
            "no figure holds for draws from a table; take a smaller epsilon, or a larger delta"
        )
    while enough > least * (1.0 + _PRECISION):
        middle = (least + enough) / 2.0
        least, enough = (least, middle) if is_enough(middle) else (middle, enough)
    return enough


@lru_cache(maxsize=256)
def planned_sum_noise(
    distribution: Distribution,
    noise_multiplier: float,
    *,
    clip_norm: float,
    dimension: int,
    honest_clients: int,
    clients: int | None,
    unit: Literal["client", "sample"] = "client",
    count_deviation: float | None = None,
) -> SumNoise:
    """Return the plan of the fewest bits on the wire in which rounding adds at most 3 % to an update's squared norm.

    Of so many bits it takes the finest steps at which updates and their noise fit.

    Parameters
    ----------
    distribution : of the noise.
    noise_multiplier : the deviation of the honest clients' noise over the clipping norm, above 0.
    clip_norm : L2, of an update.
    dimension : values of an update.
    honest_clients : the fewest of a sum.
    clients : the most of a sum, whose bits are then what is sent; None where sums have room for whatever clients send,
        so that the bits of a value decide.
    unit : whose part in a sum is charged; the plan is the same.
    count_deviation : of the honest clients' noise on how many of them are within the clipping norm, over their number;
        None where nobody counts them.

    Raises ParameterError where no scale fits so much, or so little, noise.
    """
    if not _LEAST_CLIP_NORM <= clip_norm <= _MOST_CLIP_NORM:
        raise ParameterError("where a sum has noise, the clipping norm must be from 2^-100 to 2^100")
    if not _LEAST_TRIED < noise_multiplier < _MOST_TRIED:
        raise ParameterError("no grid fits noise with a multiplier so far from 1")
    arguments = distribution, clip_norm, dimension, honest_clients, clients, count_deviation
    found = _fitting(noise_multiplier, *arguments)
    if found is not None:
        return replace(found, unit=unit)
    for step, words in ((2.0, "at least"), (0.5, "at most")):
        other = noise_multiplier
        while _LEAST_TRIED < other < _MOST_TRIED:
            other *= step
            if _fitting(other, *arguments) is not None:
                raise ParameterError(
                    f"no grid fits sums of {dimension:,} values of {honest_clients:,} honest clients with a noise "
                    f"multiplier of {noise_multiplier:g}: take {words} {other:.3g}"
                )
    raise ParameterError(f"no noise of {honest_clients:,} clients fits sums of {dimension:,} values")


def _fitting(
    multiplier: float,
    distribution: Distribution,
    clip_norm: float,
    dimension: int,
    honest: int,
    clients: int | None,
    count_deviation: float | None,
) -> SumNoise | None:
    for bits in range(2, (_MOST_VALUE_BITS if clients is None else _core.MOST_FIELD_BITS) + 1):

        def plan(variance: int, bits: int = bits) -> SumNoise:
            deviation = math.sqrt(honest * variance)
            steps = deviation / multiplier / clip_norm
            return SumNoise(
                distribution,
                clip_norm,
                dimension,
                honest,
                Fraction(variance),
                steps,
                min(bits, _MOST_VALUE_BITS),
                clients=clients,
                sum_bits=None if clients is None else bits,
                count_steps=0
                if count_deviation is None
                else _count_steps(deviation, honest, count_deviation),
            )

        found = _largest(plan)
        if (
            found is not None
            and found.steps_per_unit * clip_norm <= _MOST_NORM
            and found.norm_bound_squared <= (1.0 + _MOST_INFLATION) * (found.steps_per_unit * clip_norm) ** 2
        ):
            return _in_fewest_bits(found)
    return None


def _in_fewest_bits(plan: SumNoise) -> SumNoise:
    """Return the plan with as few bits of what one client sends as hold it."""
    narrower = replace(plan, value_bits=plan.value_bits - 1)
    return _in_fewest_bits(narrower) if _holds_draws(narrower) else plan


def _holds_draws(plan: SumNoise) -> bool:
    return plan.log2_chance_of_cut_draw <= LOG2_LEFT_OUT


def _count_steps(deviation: float, honest: int, count_deviation: float) -> int:
    """Return half of what a client more within the norm moves a sum by, in steps, given its noise's deviation.

    Rounded down, where there is a step at least: of noise the count may have more than was asked for.
    """
    return max(1, math.floor(min(deviation / (2.0 * count_deviation * honest), _MOST_NORM)))


def _largest(plan: Callable[[int], SumNoise]) -> SumNoise | None:
    """Return the plan of the largest variance whose draws and sums fit beside rounded values; None where there is none.

    The plan itself is asked, since products of floats may be above a whole number that they stand for.
    """

    def fits(variance: int) -> bool:
        one = plan(variance)
        return _holds_draws(one) and one.log2_chance_of_too_large_sum <= _LOG2_TOO_LARGE

    low, high = _LEAST_VARIANCE, _MOST_VARIANCE + 1
    if not fits(low):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return plan(low)
