"""Clients of averages whose sums have noise: each adds its share, and encrypts whole numbers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from shieldfl.masks import Mask
from shieldfl.methods.masked_average.client import MaskedAverageClient
from shieldfl.methods.protocol.disclosure import Disclosure
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.methods.protocol.training_client import LocalBuffers
from shieldfl.privacy import draws
from shieldfl.privacy.events import EncryptedUpload, Noise, NoiseShareUpload
from shieldfl.privacy.noise_share import NoiseShareFacts, mean_of_total, noise_share
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.training.local_update import FloatVector

__all__ = ["NoiseSharing", "NoiseSharingClient"]


class NoiseSharing(MaskedAverageClient):
    """What it encrypts is clipped, rotated and rounded, and has its share of the sum's noise.

    Whoever derives sets ``_sum_noise``, and says by ``_vector`` and ``in_the_mean`` which positions are encrypted.
    """

    _sum_noise: SumNoise

    @property
    def _clip_norm(self) -> float:
        """What is clipped to in the round that runs."""
        return self._sum_noise.clip_norm

    @property
    def deviation_of_share(self) -> float:
        """The deviation of what it draws for each value in the round that runs, in the update's unit."""
        noise = self._sum_noise
        return noise.deviation_of_share * (self._clip_norm / noise.clip_norm)

    def in_the_mean(self, vector: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return its part (P,) of what the round's mean is of, by what it has encrypted, as it alone knows it."""
        raise NotImplementedError

    def _share_of(self, values: FloatVector) -> NDArray[np.float64]:
        """Return the whole numbers (n,) that stand for so many values."""
        sent, _ = self._noised(values)
        return sent.astype(np.float64)

    def _noised(self, values: FloatVector) -> tuple[NDArray[np.int32], NoiseShareFacts]:
        """Return the same numbers, and what it learns on the way."""
        noise = self._sum_noise
        return noise_share(
            values,
            clip_norm=self._clip_norm,
            steps_per_unit=noise.steps_per_unit_at(self._clip_norm),
            rotation_seed=draws.rotation_seed(self.context.keys.session, self.round),
            norm_bound_squared=noise.norm_bound_squared,
            most_rounded=noise.most_rounded,
            most_sent=noise.most_sent,
            table=noise.table,
            threads=self.context.threads,
        )

    def _values_of(self, share: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what a sum of this share (n,) alone would be read as."""
        return mean_of_total(
            np.ascontiguousarray(share),
            clients=1,
            steps_per_unit=self._sum_noise.steps_per_unit_at(self._clip_norm),
            rotation_seed=draws.rotation_seed(self.context.keys.session, self.round),
            threads=self.context.threads,
        )

    def _state(self, disclosure: Disclosure) -> None:
        """State that what is encrypted has noise, where something is: it is in the sum that is opened."""
        has_share = disclosure.encrypted.count > 0
        super()._state(replace(disclosure, encrypts_noised=True) if has_share else disclosure)

    def _encrypted_event(self, noise: Noise | None, synthetic: bool) -> EncryptedUpload | NoiseShareUpload:
        return NoiseShareUpload(self.round, self.index, self._sum_noise.charge)


class NoiseSharingClient(LocalBuffers, NoiseSharing):
    """Encrypts the same parameters in every round, sends nothing else, and keeps its buffers.

    Parameters
    ----------
    index, initial, context : as for :class:`MaskedAverageClient`; it counts 1.
    zone : the N positions, of which parameters alone are encrypted.
    noise : the plan of it, for as many values.
    """

    def __init__(
        self, index: int, initial: GlobalModel, context: RoleContext, zone: Mask, noise: SumNoise
    ) -> None:
        super().__init__(index, 1, initial, context, zone, sends_rest=False, shares_buffers=False)
        self._buffers = initial.buffers
        self._sum_noise = noise
        self._parameters = zone.resized(self._size)

    def _vector(self, answer: object) -> NDArray[np.float64]:
        """Return whole numbers in the zone, and zeros elsewhere, which is not encrypted; (N,)."""
        vector = np.zeros(self._size + self._buffer_count)
        share = self._share_of(self._parameters.gather(self._difference()))
        self._parameters.resized(vector.size).scatter(share, vector)
        return vector

    def in_the_mean(self, vector: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float64]:
        """Return its part (P,) of what the round's mean is of, by what it has encrypted, as it alone knows it."""
        own = np.zeros(self._size)
        share = self._parameters.gather(np.asarray(vector[: self._size], dtype=np.float64))
        self._parameters.scatter(self._values_of(share), own)
        return own
