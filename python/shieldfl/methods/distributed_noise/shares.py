"""A client's shares of the noise that sums have: what stands for its values where they are encrypted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from shieldfl.learning.local_update import FloatVector
from shieldfl.privacy import draws
from shieldfl.privacy.noise_share import NoiseShareFacts, mean_of_total, noise_share
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.rounds.public_setup import RoleContext


@dataclass(frozen=True)
class NoiseShares:
    """Makes and reads shares under the plan of a federation's noise, in rounds and by the norms they are clipped to."""

    noise: SumNoise
    context: RoleContext

    def of(
        self, values: FloatVector, round_number: int, clip_norm: float
    ) -> tuple[NDArray[np.int32], NoiseShareFacts]:
        """Return the whole numbers (n,) that stand for values, clipped, rotated and rounded, and what it learns."""
        noise = self.noise
        return noise_share(
            values,
            clip_norm=clip_norm,
            steps_per_unit=noise.steps_per_unit_at(clip_norm),
            rotation_seed=draws.rotation_seed(self.context.keys.session, round_number),
            norm_bound_squared=noise.norm_bound_squared,
            most_rounded=noise.most_rounded,
            most_sent=noise.most_sent,
            table=noise.table,
            threads=self.context.threads,
        )

    def of_count(self, within: bool, round_number: int) -> NDArray[np.int32]:
        """Return the whole number (1,) that stands for whether an update is within its norm.

        It is a vector of one value in its own right: what keeps the bound of the others keeps that of this one.
        """
        noise = self.noise
        counted, _ = noise_share(
            np.array([1.0 if within else -1.0], dtype=np.float32),
            clip_norm=1.0,
            steps_per_unit=float(noise.count_steps),
            rotation_seed=draws.rotation_seed(self.context.keys.session, round_number),
            norm_bound_squared=noise.count_steps**2,
            most_rounded=noise.count_steps,
            most_sent=noise.most_sent,
            table=noise.table,
            threads=self.context.threads,
        )
        return counted

    def read(self, share: NDArray[np.float64], round_number: int, clip_norm: float) -> NDArray[np.float64]:
        """Return what a sum of this share (n,) alone would be read as."""
        return mean_of_total(
            np.ascontiguousarray(share),
            clients=1,
            steps_per_unit=self.noise.steps_per_unit_at(clip_norm),
            rotation_seed=draws.rotation_seed(self.context.keys.session, round_number),
            threads=self.context.threads,
        )
