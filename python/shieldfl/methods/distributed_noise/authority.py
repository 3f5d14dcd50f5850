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
from shieldfl.privacy import draws
from shieldfl.privacy.noise_share import mean_of_total
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.roles.message import Message
from shieldfl.roles.round_signer import RoundSigner
from shieldfl.roles.total_opener import TotalOpener

__all__ = ["NoisySumAuthority", "mean_of_shares", "open_noisy_mean"]


class NoisySumAuthority(MaskedAverageAuthority):
    """Keeps a model without buffers, which stay with the clients."""

    def __init__(
        self, context: RoleContext, initial: GlobalModel, keys: RoundSigner, zone: Mask, noise: SumNoise
    ) -> None:
        shared = GlobalModel(initial.parameters, initial.buffers[:0])
        super().__init__(context, shared, keys, zone, sends_rest=False)
        self._noise = noise

    def _open_mean(self, claim: MixedTotal, keys: TotalOpener[Any], message: Message) -> NDArray[np.float64]:
        """Return the mean update of the parameters, float64 (P,)."""
        return open_noisy_mean(claim, keys, self._noise, self.context)


def open_noisy_mean(
    claim: MixedTotal, keys: TotalOpener[Any], noise: SumNoise, context: RoleContext
) -> NDArray[np.float64]:
    """Open a total of shares and return the mean that it tells of, zero where nothing is encrypted.

    It is of the update's P parameters, or of as many values as the total is of, where those are fewer.

    Raises as :meth:`MixedTotal.check_weights` and the opening of a total do.
    """
    claim.check_weights(1)
    total = claim.union.scatter(keys.open(claim.total))
    return mean_of_shares(total, claim, noise.steps_per_unit, context)


def mean_of_shares(
    total: NDArray[np.float64], claim: MixedTotal, steps_per_unit: float, context: RoleContext
) -> NDArray[np.float64]:
    """Return the same mean of a total (N,) that is open."""
    positions = claim.positions.resized(min(claim.positions.size, context.plan.parameters))
    mean = np.zeros(positions.size)
    values = mean_of_total(
        positions.gather(total[: positions.size]),
        clients=claim.total.clients,
        steps_per_unit=steps_per_unit,
        rotation_seed=draws.rotation_seed(context.keys.session, claim.total.round),
        threads=context.threads,
    )
    positions.scatter(values, mean)
    return mean
