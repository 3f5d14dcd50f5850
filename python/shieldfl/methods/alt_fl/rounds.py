"""What each round of Alt-FL's four methods does: algorithms 1 to 3 and the baseline MP of its section IV."""

from __future__ import annotations

from shieldfl.masks import Mask
from shieldfl.methods.encrypted_sum.mixed_upload import encrypted_positions
from shieldfl.methods.noised_average.rounds import KindsOfRounds, RoundKind

__all__ = ["ZonesOfRounds", "rounds_of"]

_ENCRYPTED = RoundKind(encrypts=True)
_NOISED = RoundKind(noises=True)
_BOTH = RoundKind(encrypts=True, noises=True)
_SYNTHETIC = RoundKind()
_KINDS = {
    "alt-fl-pi": (_ENCRYPTED, _NOISED),
    "alt-fl-si-dp": (_NOISED, _SYNTHETIC),
    "alt-fl-si-he": (_ENCRYPTED, _SYNTHETIC),
    "alt-fl-mp": (_BOTH, _BOTH),
}


def rounds_of(method: str, ratio: str) -> KindsOfRounds:
    """Return the kinds of rounds of one of the four, under a ratio as of :class:`AlternatingSchedule`."""
    return KindsOfRounds(*_KINDS[method], ratio)


class ZonesOfRounds:
    """Which of the N positions a round encrypts: buffers always, parameters by its kind.

    Parameters
    ----------
    rounds : the kinds.
    settled : what rounds that encrypt do where nothing is to be agreed on, see ``settled_positions``; None otherwise.
    parameters, buffers : how many there are.
    """

    def __init__(self, rounds: KindsOfRounds, settled: Mask | None, parameters: int, buffers: int) -> None:
        self.rounds = rounds
        self._buffers_alone = encrypted_positions(Mask.empty(parameters), buffers)
        self._settled = settled

    def needs_mask(self, round_number: int) -> bool:
        """Say whether the round encrypts what only a mask that is agreed on can tell."""
        return self.rounds.kind(round_number).encrypts and self._settled is None

    def of(self, round_number: int, agreed: Mask | None) -> Mask | None:
        """Return the round's positions; None where they are not agreed on yet."""
        if not self.rounds.kind(round_number).encrypts:
            return self._buffers_alone
        return agreed if self._settled is None else self._settled
