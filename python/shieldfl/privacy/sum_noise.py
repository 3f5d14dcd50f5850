"""Noise of which every client adds a share: how large it is, on which grid, and what an opened sum costs.

Shares are as large as the fewest honest clients of a sum need; where more take part, their sum only has more noise. See
:mod:`shieldfl.privacy.discrete_sums` for the theorems, and :mod:`shieldfl.privacy.sum_noise_plan` for how bits are
chosen.

Where clients also count how many of them are within the clipping norm, one more value has the same noise: plus or minus
``count_steps``. All is stated in steps, whose size alone follows a norm that changes: what a sum costs stays the same.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal

from shieldfl.errors import ParameterError
from shieldfl.privacy.accountant import epsilon_of
from shieldfl.privacy.discrete_sums import Distribution, log2_tail, most_rotated, rounded_norm_squared
from shieldfl.privacy.events import NoiseOfSum
from shieldfl.privacy.noise_table import NoiseTable

__all__ = ["LOG2_LEFT_OUT", "SumNoise"]

LOG2_LEFT_OUT = -110.0
"""Of a draw: what a table may be off by, and once more the chance that it does not fit what is sent."""


@dataclass(frozen=True)
class SumNoise:
    """What clients, and who opens their sums, have to know of the noise; all of it is public.

    A client clips an update to ``clip_norm``, rotates it, multiplies by ``steps_per_unit``, rounds to integers of at
    most ``most_rounded`` whose squared norm is at most ``norm_bound_squared``, and adds a draw of ``table`` to each.
    """

    distribution: Distribution
    clip_norm: float
    """L2, of an update."""
    dimension: int
    """Values of an update."""
    honest_clients: int
    """The fewest of a sum, whose shares together are the noise that is charged."""
    share_variance: Fraction
    """Of one client's draws, in squared steps; a whole number."""
    steps_per_unit: float
    value_bits: int
    """Of what is sent of each value, sign included."""
    clients: int | None
    """The most of a sum; None where sums have room for whatever they send."""
    sum_bits: int | None
    """Of a sum of that, sign included; None where it has as many as any sum takes."""
    unit: Literal["client", "sample"] = "client"
    """Whose part in a sum is charged: all of a client's, or that of one sample of it."""
    count_steps: int = 0
    """Magnitude of the value that counts clients within the clipping norm, in steps; 0 where there is none."""

    @property
    def norm_bound_squared(self) -> int:
        """The largest squared norm of a rounded update, in squared steps."""
        return rounded_norm_squared(self._norm, self.dimension)

    @property
    def most_rounded(self) -> int:
        """The largest magnitude of a rounded value, in steps."""
        return most_rotated(self._norm, self.dimension)

    @property
    def most_sent(self) -> int:
        """The largest magnitude of what is sent, in steps: so many bits hold it, whatever is drawn."""
        return _most_of(self.value_bits)

    @property
    def log2_chance_of_cut_draw(self) -> float:
        """log2 of a bound of the chance that a draw takes a value beyond ``most_sent``, and is cut."""
        left = self.most_sent - self._most_without_noise
        return log2_tail(self.distribution, int(self.share_variance), left) if left >= 0 else 0.0

    @property
    def log2_chance_of_too_large_sum(self) -> float:
        """log2 of a bound of the chance that of a sum's values one does not fit ``sum_bits``, and opens wrongly.

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
        return math.sqrt(self.honest_clients * self.share_variance) / self._norm

    @property
    def deviation_of_share(self) -> float:
        """The deviation of one client's draws, in the updates' unit; turning them back changes nothing of it."""
        return math.sqrt(self.share_variance) / self.steps_per_unit

    @property
    def multiplier_with_count(self) -> float:
        """The same over the norm of an update and its count together."""
        return math.sqrt(self.honest_clients * self.share_variance) / math.hypot(self._norm, self.count_steps)

    @property
    def count_multiplier(self) -> float:
        """The deviation of their noise over what a client adds to the count; infinite where there is none."""
        deviation = math.sqrt(self.honest_clients * self.share_variance)
        return deviation / self.count_steps if self.count_steps else math.inf

    @property
    def _norm(self) -> float:
        return self.steps_per_unit * self.clip_norm

    @property
    def _values(self) -> int:
        """Of an update, with its count."""
        return self.dimension + (self.count_steps > 0)

    @property
    def _most_without_noise(self) -> int:
        return max(self.most_rounded, self.count_steps)

    @property
    def agreed(self) -> dict[str, str | int | float | None]:
        """What clients and who opens their sums have to have the same, as plain data."""
        return {**asdict(self), "share_variance": int(self.share_variance)}

    def steps_per_unit_at(self, clip_norm: float) -> float:
        """Return the steps per unit with which another clipping norm has as many steps as the plan's."""
        return self.steps_per_unit if clip_norm == self.clip_norm else self._norm / clip_norm

    @cached_property
    def table(self) -> NoiseTable:
        """What one client draws from."""
        make = NoiseTable.skellam if self.distribution == "skellam" else NoiseTable.discrete_gaussian
        table = make(self.share_variance)
        if table.log2_distance > LOG2_LEFT_OUT:
            raise ParameterError("the noise's table is further from its distribution than is charged for")
        return table

    @cached_property
    def charge(self) -> NoiseOfSum:
        """What one opened sum is charged.

        A draw is off where the table is, or where its sum with a rounded value does not fit and is cut. What others
        than the fewest honest clients add counts for nothing, and may be off. A count is one value more, of a known
        magnitude.
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
        """Return what so many opened sums cost together; infinite where there is too little noise for any figure."""
        return epsilon_of({self.charge: rounds}, delta)

    def epsilon_of_single_uploads(self, rounds: int, delta: float) -> float:
        """Return what so many uploads of a client would cost if each were opened alone, with its own share of noise."""
        alone = self.charge.log2_distance - math.log2(self.honest_clients)
        return epsilon_of({replace(self.charge, honest_clients=1, log2_distance=alone): rounds}, delta)

    def added_delta(self, rounds: int, delta: float) -> float | None:
        """Return what so many sums take of delta for draws that are off, as in :func:`epsilon_of`.

        None where there is no finite epsilon.
        """
        epsilon = self.epsilon(rounds, delta)
        if math.isinf(epsilon):
            return None
        return rounds * math.exp2(self.charge.log2_distance) * (1.0 + math.exp(epsilon))


def _most_of(value_bits: int) -> int:
    """Return the largest magnitude of a signed value of so many bits."""
    return (1 << (value_bits - 1)) - 1
