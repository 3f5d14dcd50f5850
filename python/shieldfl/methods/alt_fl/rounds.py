"""What each round of Alt-FL's four methods does: algorithms 1 to 3 and the baseline MP of its section IV."""

from __future__ import annotations

from dataclasses import dataclass

from shieldfl.masks import Mask
from shieldfl.methods.alt_fl.schedule import AlternatingSchedule
from shieldfl.methods.encrypted_sum.encrypted_positions import encrypted_positions

__all__ = ["AltFlRounds", "RoundKind", "ZonesOfRounds"]


@dataclass(frozen=True)
class RoundKind:
    """How a round protects what clients send; one with neither protection trains on synthetic data."""

    encrypts: bool = False
    """The most sensitive share of the update is encrypted (S-HE)."""
    noises: bool = False
    """Clients train by DP-SGD."""

    @property
    def synthetic(self) -> bool:
        """Whether clients train on synthetic data, whose updates need no protection."""
        return not (self.encrypts or self.noises)


_ENCRYPTED = RoundKind(encrypts=True)
_NOISED = RoundKind(noises=True)
_BOTH = RoundKind(encrypts=True, noises=True)
_SYNTHETIC = RoundKind()
_KINDS = {
    "alt-fl-pi": (_ENCRYPTED, _NOISED),
    "alt-fl-si-dp": (_NOISED, _SYNTHETIC),
    "alt-fl-si-he": (_ENCRYPTED, _SYNTHETIC),
    "alt-fl-mp": (_BOTH, _BOTH),
    "dp-sgd": (_NOISED, _NOISED),
}


class AltFlRounds:
    """The kinds of rounds of a method, in their order.

    Parameters
    ----------
    method : ``"alt-fl-pi"``, ``"alt-fl-si-dp"``, ``"alt-fl-si-he"``, ``"alt-fl-mp"`` or ``"dp-sgd"``.
    ratio : rho, see :class:`AlternatingSchedule`; no matter where all rounds are alike.
    """

    def __init__(self, method: str, ratio: str = "0") -> None:
        self.schedule = AlternatingSchedule(ratio)
        self._first, self._second = _KINDS[method]

    @property
    def alternates(self) -> bool:
        """Whether there are two kinds."""
        return self._first != self._second

    @property
    def trains_privately(self) -> bool:
        """Whether a run that is long enough has rounds with DP-SGD."""
        return any(kind.noises for kind in self._all)

    @property
    def encrypts(self) -> bool:
        """Whether a run that is long enough has rounds with S-HE."""
        return any(kind.encrypts for kind in self._all)

    @property
    def _all(self) -> tuple[RoundKind, ...]:
        ratio = self.schedule.ratio
        return (self._first,) * (ratio < 1) + (self._second,) * (ratio > 0)

    def kind(self, round_number: int) -> RoundKind:
        """Return what this round does, counted from 1."""
        return self._first if self.schedule.is_first_kind(round_number) else self._second

    def kinds(self, total: int) -> set[RoundKind]:
        """Return which kinds there are among rounds 1 to ``total``."""
        firsts = self.schedule.first_kind_rounds(total)
        return ({self._first} if firsts else set()) | ({self._second} if len(firsts) < total else set())


class ZonesOfRounds:
    """Which of the N positions a round encrypts: buffers always, parameters by its kind.

    Parameters
    ----------
    rounds : the kinds.
    settled : what rounds that encrypt do where nothing is to be agreed on, see ``settled_positions``; None otherwise.
    parameters, buffers : how many there are.
    """

    def __init__(self, rounds: AltFlRounds, settled: Mask | None, parameters: int, buffers: int) -> None:
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
