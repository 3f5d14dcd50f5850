"""A client of averages whose sums have noise: it adds its share, encrypts whole numbers, and keeps its buffers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shieldfl.masks import Mask
from shieldfl.methods.masked_average.client import MaskedAverageClient
from shieldfl.methods.protocol.disclosure import Disclosure
from shieldfl.methods.protocol.global_model import GlobalModel, joined
from shieldfl.methods.protocol.local_buffers import LocalBuffers
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.privacy.events import EncryptedUpload, Noise, NoiseShareUpload
from shieldfl.privacy.noise_share import NoiseShareFacts, mean_of_total, noise_share
from shieldfl.privacy.sum_noise import SumNoise, rotation_seed

__all__ = ["NoiseSharingClient"]


class NoiseSharingClient(LocalBuffers, MaskedAverageClient):
    """Encrypts its clipped, rotated and rounded update with its share of the sum's noise.

    Parameters
    ----------
    index, initial, context : as for :class:`MaskedAverageClient`; it counts 1.
    zone : the N positions, of which the P parameters are encrypted.
    noise : the plan of it.
    """

    def __init__(
        self, index: int, initial: GlobalModel, context: RoleContext, zone: Mask, noise: SumNoise
    ) -> None:
        super().__init__(index, 1, initial, context, zone, sends_rest=False, shares_buffers=False)
        self._buffers = initial.buffers
        self._sum_noise = noise

    @property
    def _clip_norm(self) -> float:
        """What an update of the round that runs is clipped to."""
        return self._sum_noise.clip_norm

    def _vector(self, answer: object) -> NDArray[np.float64]:
        """Return whole numbers (P,), and zeros where buffers would be, which are not encrypted."""
        return joined(self._shares(), np.zeros(self._buffer_count))

    def _shares(self) -> NDArray[np.float64]:
        """Return the whole numbers that are encrypted: of its update (P,)."""
        sent, _ = self._share()
        return sent.astype(np.float64)

    def _share(self) -> tuple[NDArray[np.int32], NoiseShareFacts]:
        """Return its update as it is sent, and what it learns on the way."""
        noise = self._sum_noise
        return noise_share(
            self._difference(),
            clip_norm=self._clip_norm,
            steps_per_unit=noise.steps_per_unit_at(self._clip_norm),
            rotation_seed=rotation_seed(self.context.keys.session, self.round),
            norm_bound_squared=noise.norm_bound_squared,
            most_rounded=noise.most_rounded,
            most_sent=noise.most_sent,
            table=noise.table,
            threads=self.context.threads,
        )

    def in_the_mean(self, vector: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return its part (P,) of what the round's mean is of, by what it has encrypted, as it alone knows it."""
        return mean_of_total(
            np.ascontiguousarray(vector[: self._size]),
            clients=1,
            steps_per_unit=self._sum_noise.steps_per_unit_at(self._clip_norm),
            rotation_seed=rotation_seed(self.context.keys.session, self.round),
            threads=self.context.threads,
        )

    def _state(self, disclosure: Disclosure) -> None:
        """State that what is encrypted has noise: it is in the sum that is opened."""
        super()._state(replace(disclosure, encrypts_noised=True))

    def _encrypted_event(self, noise: Noise | None, synthetic: bool) -> EncryptedUpload | NoiseShareUpload:
        return NoiseShareUpload(self.round, self.index, self._sum_noise.charge)
