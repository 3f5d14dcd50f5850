"""Who opens sums that have noise: makes an update of whole numbers only once they are summed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.masks import Mask
from shieldfl.methods.encrypted_sum.mixed_total import MixedTotal
from shieldfl.methods.masked_average.authority import MaskedAverageAuthority
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.privacy.noise_share import mean_of_total
from shieldfl.privacy.sum_noise import SumNoise, rotation_seed
from shieldfl.roles.message import Message
from shieldfl.roles.round_signer import RoundSigner
from shieldfl.roles.total_opener import TotalOpener

__all__ = ["NoisySumAuthority"]


class NoisySumAuthority(MaskedAverageAuthority):
    """Keeps a model without buffers, which stay with the clients."""

    def __init__(
        self, context: RoleContext, initial: GlobalModel, keys: RoundSigner, zone: Mask, noise: SumNoise
    ) -> None:
        shared = GlobalModel(initial.parameters, initial.buffers[:0])
        super().__init__(context, shared, keys, zone, sends_rest=False)
        self._sum_noise = noise

    @property
    def _clip_norm(self) -> float:
        """What updates of the round that runs are clipped to."""
        return self._sum_noise.clip_norm

    def _open_mean(self, claim: MixedTotal, keys: TotalOpener[Any], message: Message) -> NDArray[np.float64]:
        """Return the mean update of the parameters, float64 (P,)."""
        claim.check_weights(1)
        return self._mean_of(claim.union.scatter(keys.open(claim.total)), claim)

    def _mean_of(self, total: NDArray[np.float64], claim: MixedTotal) -> NDArray[np.float64]:
        """Return the mean update (P,) that an opened total (N,) tells of."""
        return mean_of_total(
            total[: self.context.plan.parameters],
            clients=claim.total.clients,
            steps_per_unit=self._sum_noise.steps_per_unit_at(self._clip_norm),
            rotation_seed=rotation_seed(self.context.keys.session, claim.total.round),
            threads=self.context.threads,
        )
