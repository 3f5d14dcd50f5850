"""What each round asks of clients: encryption, noise in training, or neither, on synthetic data."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from shieldfl.methods.noised_average.schedule import AlternatingSchedule

__all__ = ["KindsOfRounds", "RoundKind"]


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


class KindsOfRounds:
    """Of which of two kinds each round is.

    Parameters
    ----------
    first, second : the kinds.
    ratio : rho, see :class:`AlternatingSchedule`; no matter where both are alike.
    """

    def __init__(self, first: RoundKind, second: RoundKind, ratio: str = "0") -> None:
        self.schedule = AlternatingSchedule(ratio)
        self._first, self._second = first, second

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

    def counts(self, total: int) -> Counter[RoundKind]:
        """Return how many of rounds 1 to ``total`` are of each kind; a kind that none has is not there."""
        firsts = self.schedule.first_kind_count(total)
        return Counter({self._first: firsts}) + Counter({self._second: total - firsts})
