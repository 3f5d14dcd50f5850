"""A round's sum is asked for, and then that of the same round without one client: their difference is its update."""

from __future__ import annotations

from typing import ClassVar

from shieldfl.audit.protocol.lying_aggregator import LyingAggregator
from shieldfl.audit.protocol.protocol_attack import ProtocolAttack
from shieldfl.training.local_update import FloatVector

__all__ = ["SecondTotal"]


class SecondTotal(ProtocolAttack):
    """Asks twice in a round, with the victim and without it."""

    name: ClassVar[str] = "second-total"
    source: ClassVar[str] = "docs/threat-model.md: a round has one total"

    @classmethod
    def obtain(cls, liar: LyingAggregator, phase: str, victim: int) -> FloatVector:
        """Ask for both sums."""
        everybody = liar.answer(liar.question(phase), victim)
        others = {client: message for client, message in liar.sent.items() if client != victim}
        without = liar.answer(liar.question(phase, others), victim)
        return len(liar.sent) * everybody - len(others) * without
