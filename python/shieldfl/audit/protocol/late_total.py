"""Once the next round runs, the sum of the round before is asked for again, without one client."""

from __future__ import annotations

from typing import ClassVar

from shieldfl.audit.protocol.lying_aggregator import LyingAggregator
from shieldfl.audit.protocol.protocol_attack import ProtocolAttack
from shieldfl.training.local_update import FloatVector

__all__ = ["LateTotal"]


class LateTotal(ProtocolAttack):
    """Keeps a round's ciphertexts, and asks for a second sum of them when its keys should be gone."""

    name: ClassVar[str] = "late-total"
    source: ClassVar[str] = "docs/threat-model.md: keys and answers are of one round"
    rounds_back: ClassVar[int] = 1

    @classmethod
    def obtain(cls, liar: LyingAggregator, phase: str, victim: int) -> FloatVector | None:
        """Ask what was prepared in the round before, and prepare the same of this one."""
        earlier = dict(liar.kept)
        for client in liar.sent:
            others = {index: message for index, message in liar.sent.items() if index != client}
            liar.kept[client] = liar.question(phase, others)
        if victim not in earlier:
            return None
        # What the honest sum of that round has moved the model by, and what the one without the victim would have.
        everybody = liar.changed_since(earlier[victim], victim)
        count = len(liar.sent)
        return count * everybody - (count - 1) * liar.answer(earlier[victim], victim)
