"""A sum of one client, or of fewer than the set-up says, is asked for."""

from __future__ import annotations

from typing import ClassVar

from shieldfl.audit.protocol.lying_aggregator import LyingAggregator
from shieldfl.audit.protocol.played_federation import PlayedFederation
from shieldfl.audit.protocol.protocol_attack import ProtocolAttack
from shieldfl.training.local_update import FloatVector

__all__ = ["FewTotal", "LoneTotal"]


class LoneTotal(ProtocolAttack):
    """Asks for the sum of the victim alone: its mean is the victim's update."""

    name: ClassVar[str] = "lone-total"
    source: ClassVar[str] = "docs/threat-model.md: no sum of fewer than min_clients is opened"

    @classmethod
    def obtain(cls, liar: LyingAggregator, phase: str, victim: int) -> FloatVector:
        """Ask for the victim's sum."""
        return liar.answer(liar.question(phase, {victim: liar.sent[victim]}), victim)


class FewTotal(ProtocolAttack):
    """Asks for the sum of the victim and the liar's client: what that one has sent is taken from it."""

    name: ClassVar[str] = "few-total"
    source: ClassVar[str] = "docs/threat-model.md: no sum of fewer than min_clients is opened"
    needs_client: ClassVar[bool] = True

    @classmethod
    def inapplicable(cls, federation: PlayedFederation) -> str | None:
        """It needs a sum of two that is too small."""
        fewest = federation.method.plan.min_clients
        if fewest > 2:
            return None
        return f"min_clients is {fewest}: a sum of two, one of them the liar's client, is not too small"

    @classmethod
    def obtain(cls, liar: LyingAggregator, phase: str, victim: int) -> FloatVector:
        """Ask for the sum of two."""
        two = {client: liar.sent[client] for client in (victim, liar.reader)}
        return 2 * liar.answer(liar.question(phase, two), victim) - liar.own_change
