"""The key authority of Alt-FL's methods with encryption."""

from __future__ import annotations

from shieldfl.errors import PolicyError
from shieldfl.masks import Mask
from shieldfl.methods.agreed_mask.authority import AgreedMaskAuthority
from shieldfl.methods.alt_fl.rounds import ZonesOfRounds
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.roles.message import Message
from shieldfl.roles.round_signer import RoundSigner

__all__ = ["AltFlAuthority"]


class AltFlAuthority(AgreedMaskAuthority):
    """Opens a total only if it covers what a round of its kind encrypts."""

    def __init__(
        self,
        context: RoleContext,
        initial: GlobalModel,
        keys: RoundSigner,
        share: float,
        zones: ZonesOfRounds,
    ) -> None:
        super().__init__(context, initial, keys, share)
        self._zones = zones

    def _purposes(self, round_number: int, model: Message) -> tuple[str, ...]:
        return super()._purposes(round_number, model) if self._zones.needs_mask(round_number) else ("update",)

    def _zone_of(self, round_number: int) -> Mask:
        zone = self._zones.of(round_number, self.zone)
        if zone is None:
            raise PolicyError("no mask has been agreed on: send the scores first")
        return zone
