"""Noise on sums, in shares that clients add: its plan, and in which steps and bits shares are sent.

Shares are as large as the fewest honest clients of a sum need; where more take part, their sum only has more
noise. :mod:`shieldfl.privacy.accountant` has the theorems on what a sum costs.

Where clients also count how many of them are within the clipping norm, one more value has the same noise:
plus or minus ``count_steps``. All is stated in steps, whose size alone follows a norm that changes: what a
sum costs stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

import shieldfl._core as _core
from shieldfl.errors import ParameterError
from shieldfl.privacy.accountant import epsilon_of, noise_multiplier_for
from shieldfl.privacy.events import Distribution, NoiseOfSum, Unit
from shieldfl.privacy.noise import NoiseTable, noise_table

LOG2_LEFT_OUT = -110.0
"""log2 of the most that a draw may be off by its table, and of the largest chance that it is cut."""


_SPREAD = 8.0
"""Largest ratio of a rotated value to its root mean square: a larger one has a chance of 2 exp(-32)."""


def rounded_norm_squared(norm: float, dimension: int) -> int:
    """Return a bound of the squared L2 norm of a rounded vector of at most this norm, both in steps.

    It is the discrete Gaussian paper's for conditional randomised rounding, with beta = exp(-1/2): drawing
    again what is longer soon ends.
    """
    root = math.sqrt(dimension)
    likely = norm**2 + dimension / 4.0 + (norm + root / 2.0)
    return math.ceil(min(likely, (norm + root) ** 2))


def most_rotated(norm: float, dimension: int) -> int:
    """Return the largest magnitude of a rotated and rounded value that is let through, in steps.

    After random signs and a Hadamard transform of 2^k values, each value of a vector of this norm is larger
    with a chance of 2 exp(-32). A larger value is cut, which makes norms smaller and costs accuracy alone.
    """
    passed = 1 << (dimension.bit_length() - 1)
    return math.ceil(min(norm, _SPREAD * norm / math.sqrt(passed))) + 1


def log2_tail(distribution: Distribution, variance: int, beyond: int) -> float:
    """Return log2 of a bound of the chance that a draw is larger in magnitude than ``beyond``, at least 0.

    Chernoff's bound: of the discrete Gaussian by its being subgaussian (Canonne, Kamath and Steinke 2020), of
    Skellam by its own moment generating function, exp(variance (cosh t - 1)).
    """
    first = beyond + 1.0
    if distribution == "skellam":
        ratio = first / variance
        # variance (cosh t - 1) - t first at sinh t = ratio, written so that nothing cancels.
        exponent = variance * (ratio**2 / (math.hypot(1.0, ratio) + 1.0) - ratio * math.asinh(ratio))
    else:
        exponent = -(first**2) / (2.0 * variance)
    return 1.0 + exponent / math.log(2.0)


@dataclass(frozen=True)
class SumNoise:
    """What clients and the opener of their sums have to know of the noise; all of it is public.

    A client clips an update to ``clip_norm``, rotates it, multiplies by ``steps_per_unit``, rounds to
    integers of at most ``most_rounded`` whose squared norm is at most ``norm_bound_squared``, and adds a draw
    of ``table`` to each.
    """

    distribution: Distribution
    clip_norm: float
    dimension: int
    honest_clients: int
    """Smallest number of honest clients in a sum; their shares together are the noise that is charged."""
    share_variance: Fraction
    """Variance of one client's draws, in squared steps; a whole number."""
    steps_per_unit: float
    value_bits: int
    """Bits of each value that is sent, sign included."""
    clients: int | None
    """Largest number of clients in a sum; None if sums have room for whatever clients send."""
    sum_bits: int | None
    """Bits of each value of a sum, sign included; None for as many as any sum takes."""
    unit: Unit = "client"
    """Data whose part in a sum is charged: all of a client's, or one of its samples."""
    count_steps: int = 0
    """Magnitude of the value that counts clients within the clipping norm, in steps; 0 if there is none."""

    @property
    def norm_bound_squared(self) -> int:
        """The largest squared norm of a rounded update, in squared steps."""
        return rounded_norm_squared(self._norm, self.dimension)

    @property
    def most_rounded(self) -> int:
        return most_rotated(self._norm, self.dimension)

    @property
    def most_sent(self) -> int:
        """The largest magnitude of a sent value, in steps: ``value_bits`` hold it, whatever is drawn."""
        return _most_of(self.value_bits)

    @property
    def log2_chance_of_cut_draw(self) -> float:
        """log2 of a bound of the chance that a draw takes a value beyond ``most_sent``, and is cut."""
        left = self.most_sent - self._most_without_noise
        return log2_tail(self.distribution, int(self.share_variance), left) if left >= 0 else 0.0

    @property
    def log2_chance_of_too_large_sum(self) -> float:
        """log2 of a bound of the chance that a value of a sum does not fit ``sum_bits``, and opens wrongly.

        It costs no privacy: what opens then follows from the sum.
        """
        if self.clients is None or self.sum_bits is None:
            return -math.inf
        left = _most_of(self.sum_bits) - self.clients * self._most_without_noise
        noise = self.clients * int(self.share_variance)
        return log2_tail(self.distribution, noise, left) + math.log2(self._values) if left >= 0 else 0.0

    @property
    def noise_multiplier(self) -> float:
        """The deviation of the honest clients' noise over the clipping norm."""
        return self._deviation / self._norm

    @property
    def deviation_of_share(self) -> float:
        """The deviation of one client's draws, in the updates' unit.

        Turning them back changes nothing of it.
        """
        return math.sqrt(self.share_variance) / self.steps_per_unit

    @property
    def multiplier_with_count(self) -> float:
        """The deviation of the honest clients' noise over the norm of an update and its count together."""
        return self._deviation / math.hypot(self._norm, self.count_steps)

    @property
    def count_multiplier(self) -> float:
        """The deviation of the honest clients' noise over a client's part in the count; else infinite."""
        return self._deviation / self.count_steps if self.count_steps else math.inf

    @property
    def _deviation(self) -> float:
        return math.sqrt(self.honest_clients * self.share_variance)

    @property
    def _norm(self) -> float:
        return self.steps_per_unit * self.clip_norm

    @property
    def _values(self) -> int:
        return self.dimension + (self.count_steps > 0)

    @property
    def _most_without_noise(self) -> int:
        return max(self.most_rounded, self.count_steps)

    @property
    def agreed(self) -> dict[str, str | int | float | None]:
        """What clients and the opener of their sums must have alike, as plain data."""
        return {**asdict(self), "share_variance": int(self.share_variance)}

    def steps_per_unit_at(self, clip_norm: float) -> float:
        """Return the steps per unit with which another clipping norm has as many steps as the plan's."""
        return self.steps_per_unit if clip_norm == self.clip_norm else self._norm / clip_norm

    @cached_property
    def table(self) -> NoiseTable:
        table = noise_table(self.distribution, self.share_variance)
        if table.log2_distance > LOG2_LEFT_OUT:
            raise ParameterError("the noise's table is further from its distribution than is charged for")
        return table

    @cached_property
    def charge(self) -> NoiseOfSum:
        """The charge of one opened sum.

        A draw is off where the table is, or where its sum with a rounded value does not fit and is cut. Noise
        of others than the fewest honest clients counts for nothing, and may be off. A count is one more
        value, of a known magnitude.
        """
        values = self._values
        return NoiseOfSum(
            self.distribution,
            self.honest_clients,
            int(self.share_variance),
            self.norm_bound_squared + self.count_steps**2,
            values,
            math.log2(self.honest_clients * values) + LOG2_LEFT_OUT + 1.0,
            self.unit,
        )

    def epsilon(self, rounds: int, delta: float) -> float:
        """Return the epsilon of so many opened sums together.

        It is infinite if there is too little noise for any figure.
        """
        return epsilon_of({self.charge: rounds}, delta)

    def epsilon_of_single_uploads(self, rounds: int, delta: float) -> float:
        """Return the epsilon of so many uploads of a client, each opened alone with its share of noise."""
        alone = self.charge.log2_distance - math.log2(self.honest_clients)
        return epsilon_of({replace(self.charge, honest_clients=1, log2_distance=alone): rounds}, delta)

    def added_delta(self, rounds: int, delta: float) -> float | None:
        """Return the part of delta that so many sums take for draws that are off, as in :func:`epsilon_of`.

        None if there is no finite epsilon.
        """
        epsilon = self.epsilon(rounds, delta)
        if math.isinf(epsilon):
            return None
        return rounds * math.exp2(self.charge.log2_distance) * (1.0 + math.exp(epsilon))


def _most_of(value_bits: int) -> int:
    return (1 << (value_bits - 1)) - 1


_MOST_VALUE_BITS = 31
"""Largest number of bits of a value that is sent, an int32: a bit stays free for what is added to it."""
_LEAST_VARIANCE = 4
"""Smallest variance of a share, in squared steps.

From here on a sum of discrete Gaussians is as good as one, and rounding is not all.
"""
_MOST_VARIANCE = 2**28
_MOST_NORM = 2.0**28
_MOST_INFLATION = 0.03
"""Largest relative part that rounding may add to an update's squared norm: 1.5 % of noise.

One more bit of each sum, some 6 % of what is sent, quarters it. As much noise is saved by 6 % more clients at
0.1.
"""
_LOG2_TOO_LARGE = -40.0
"""log2 of the largest chance that any value of a sum does not fit its bits, and opens wrongly.

It costs no privacy.
"""
_LEAST_CLIP_NORM, _MOST_CLIP_NORM = 2.0**-100, 2.0**100
_LEAST_TRIED, _MOST_TRIED = 1e-30, 1e30
_LEAST_LEFT = 2.0**-8
"""Smallest part of a target epsilon for updates beside their count: they then have 16 times the noise."""
_PRECISION = 1e-5


def fewest_honest(min_clients: int, colluders: int) -> int:
    """Return how many clients of the smallest sum are honest. Raises ParameterError where none is."""
    if colluders >= min_clients:
        raise ParameterError(
            f"noise of a sum needs an honest client in it: with colluders = {colluders} take a min_clients "
            f"of at least {colluders + 1}, not {min_clients}"
        )
    return min_clients - colluders


def multiplier_for(epsilon: float, delta: float, rounds: int, planned: Callable[[float], SumNoise]) -> float:
    """Find the least noise multiplier that keeps ``rounds`` opened sums within (epsilon, delta).

    ``planned`` returns the plan of a multiplier. The result never spends more than epsilon. It spends less if
    a value takes one more bit from there on, which leaves less to round. Raises ParameterError for arguments
    out of range, and if no noise is enough, or a count alone costs more.
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
            f"no noise of a sum reaches epsilon {epsilon:g} at delta {delta:g} over {rounds} rounds: above "
            "some tens no figure holds for draws from a table; take a smaller epsilon, or a larger delta"
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
    unit: Unit = "client",
    count_deviation: float | None = None,
) -> SumNoise:
    """Return the plan of the fewest bits on the wire in which rounding adds at most 3 % to a squared norm.

    With these bits it takes the finest steps at which updates and their noise fit. ``noise_multiplier`` is
    the deviation of the honest clients' noise over the clipping norm, ``honest_clients`` the fewest of a sum,
    ``clients`` the most, whose bits are then what is sent; None where sums have room for whatever clients
    send, so that the bits of a value decide. ``count_deviation`` is that of the honest clients' noise on how
    many of them are within the clipping norm, over their number; None where nobody counts them. Raises
    ParameterError where no scale fits so much, or so little, noise.
    """
    if not _LEAST_CLIP_NORM <= clip_norm <= _MOST_CLIP_NORM:
        raise ParameterError("where a sum has noise, the clipping norm must be from 2^-100 to 2^100")
    if not _LEAST_TRIED < noise_multiplier < _MOST_TRIED:
        raise ParameterError("no grid fits noise with a multiplier so far from 1")
    for bits in range(2, (_MOST_VALUE_BITS if clients is None else _core.MOST_FIELD_BITS) + 1):

        def plan(variance: int, bits: int = bits) -> SumNoise:
            deviation, count_steps = math.sqrt(honest_clients * variance), 0
            if count_deviation is not None:
                # Half of what a client more within the norm moves a sum by. Rounded down, where there is a
                # step at least: of noise the count may have more than was asked for.
                half = deviation / (2.0 * count_deviation * honest_clients)
                count_steps = max(1, math.floor(min(half, _MOST_NORM)))
            return SumNoise(
                distribution,
                clip_norm,
                dimension,
                honest_clients,
                Fraction(variance),
                deviation / noise_multiplier / clip_norm,
                min(bits, _MOST_VALUE_BITS),
                clients,
                None if clients is None else bits,
                unit,
                count_steps,
            )

        found = _largest(plan)
        if (
            found is not None
            and found._norm <= _MOST_NORM
            and found.norm_bound_squared <= (1.0 + _MOST_INFLATION) * found._norm**2
        ):
            while _holds_draws(narrower := replace(found, value_bits=found.value_bits - 1)):
                found = narrower
            return found
    raise ParameterError(
        f"no grid fits sums of {dimension:,} values of {honest_clients:,} honest clients with a noise "
        f"multiplier of {noise_multiplier:g}: take one nearer to 1"
    )


def _holds_draws(plan: SumNoise) -> bool:
    return plan.log2_chance_of_cut_draw <= LOG2_LEFT_OUT


def _largest(plan: Callable[[int], SumNoise]) -> SumNoise | None:
    """Return the plan of the largest variance whose draws and sums fit beside rounded values; None for none.

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
