"""The key authority of Alt-FL's methods with encryption."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import PolicyError
from shieldfl.masks import Mask
from shieldfl.methods.agreed_mask.authority import AgreedMaskAuthority
from shieldfl.methods.alt_fl.roles import ZonesOfRounds
from shieldfl.methods.distributed_noise.authority import open_noisy_mean
from shieldfl.methods.encrypted_sum.mixed_total import MixedTotal
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.privacy.sum_noise import SumNoise
from shieldfl.roles.message import Message
from shieldfl.roles.round_signer import RoundSigner
from shieldfl.roles.total_opener import TotalOpener

__all__ = ["AltFlAuthority"]


class AltFlAuthority(AgreedMaskAuthority):
    """Opens a total only if it covers what a round of its kind encrypts.

    ``noise`` is the plan of what sums of encrypted rounds have; None for none.
    """

    def __init__(
        self,
        context: RoleContext,
        initial: GlobalModel,
        keys: RoundSigner,
        share: float,
        zones: ZonesOfRounds,
        noise: SumNoise | None = None,
    ) -> None:
        super().__init__(context, initial, keys, share)
        self._zones = zones
        self._noise = noise

    def _purposes(self, round_number: int, model: Message) -> tuple[str, ...]:
        return super()._purposes(round_number, model) if self._zones.needs_mask(round_number) else ("update",)

    def _zone_of(self, round_number: int) -> Mask:
        zone = self._zones.of(round_number, self.zone)
        if zone is None:
            raise PolicyError("no mask has been agreed on: send the scores first")
        return zone

    def _open_mean(self, claim: MixedTotal, keys: TotalOpener[Any], message: Message) -> NDArray[np.float64]:
        """Return the mean update, float64 (N,)."""
        if self._noise is None or not self._zones.rounds.kind(claim.total.round).encrypts:
            return super()._open_mean(claim, keys, message)
        return open_noisy_mean(claim, keys, self._noise, self.context)
