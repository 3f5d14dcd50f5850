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
        self._steps_per_unit = noise.steps_per_unit

    def _open_mean(self, claim: MixedTotal, keys: TotalOpener[Any], message: Message) -> NDArray[np.float64]:
        """Return the mean update of the parameters, float64 (P,)."""
        claim.check_weights(1)
        total = claim.union.scatter(keys.open(claim.total))[: self.context.plan.parameters]
        return mean_of_total(
            total,
            clients=claim.total.clients,
            steps_per_unit=self._steps_per_unit,
            rotation_seed=rotation_seed(self.context.keys.session, claim.total.round),
            threads=self.context.threads,
        )
