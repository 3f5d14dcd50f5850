"""What each round asks of clients: encryption, noise in training, or neither, on synthetic data.

Source: Alt-FL, algorithms 1 to 3, line 2, and section IV-B. The ratio ρ = ρ_a / ρ_tot, in lowest terms, is the
share of rounds of the *second* kind: ρ_a of every ρ_tot rounds. The first kind is the authentic round of SI/DP
and SI/HE and the encrypted round of PI, the second kind their synthetic round and PI's DP round.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

from shieldfl.errors import ParameterError


@dataclass(frozen=True, init=False)
class AlternatingSchedule:
    """A fixed alternation of two kinds of rounds.

    Rounds count from 1, and round t is of the first kind if and only if t mod ρ_tot < ρ_tot − ρ_a, as the
    algorithms have it. So ρ = 1/4 makes rounds 3, 7, 11, … the second kind, and from ρ = 1/2 on the run starts
    with it. With ρ = 0 every round is of the first kind, with ρ = 1 none is.

    Parameters
    ----------
    ratio : Fraction or str
        ρ in [0, 1], such as ``Fraction(1, 4)``, ``"1/4"`` or ``"0.25"``. A float is refused: 0.4 is no fraction
        with a short period.

    Attributes
    ----------
    ratio : Fraction
        ρ in lowest terms.

    Raises
    ------
    ParameterError
        If the ratio is no fraction, has the denominator 0 or lies outside [0, 1].
    """

    ratio: Fraction

    def __init__(self, ratio: Fraction | str) -> None:
        object.__setattr__(self, "ratio", _as_ratio(ratio))

    @property
    def period_rounds(self) -> int:
        """ρ_tot: the alternation repeats after so many rounds, at least 1."""
        return self.ratio.denominator

    def is_first_kind(self, round_number: int) -> bool:
        """Say whether a round is authentic (SI/DP, SI/HE) or encrypted (PI).

        ``ParameterError`` if the round is below 1.
        """
        if round_number < 1:
            raise ParameterError(f"rounds count from 1, got {round_number}")
        return round_number % self.period_rounds < self.period_rounds - self.ratio.numerator

    def first_kind_count(self, total: int) -> int:
        """Return how many of rounds 1 to ``total`` are of the first kind.

        ``ParameterError`` if there are no rounds at all.
        """
        if total < 1:
            raise ParameterError(f"a schedule needs at least 1 round, got {total}")
        # A formula: whoever proposes a run chooses its rounds.
        periods, rest = divmod(total, self.period_rounds)
        firsts = self.period_rounds - self.ratio.numerator
        return periods * firsts + max(min(rest, firsts - 1), 0)


def _as_ratio(ratio: Fraction | str) -> Fraction:
    if isinstance(ratio, str):
        # Fraction would read "1e-99999999" too, and compute for ever.
        if not re.fullmatch(r"-?[0-9]{1,9}([/.][0-9]{1,9})?", ratio.strip()):
            raise ParameterError(
                f'the interleaving ratio {ratio[:32]!r} is no fraction: write it as in "1/4"'
            )
        try:
            ratio = Fraction(ratio)
        except ZeroDivisionError as error:
            raise ParameterError(
                "the interleaving ratio has a schedule of zero rounds (denominator 0)"
            ) from error
    if not isinstance(ratio, Fraction):
        raise ParameterError(
            f'the interleaving ratio must be a Fraction or text such as "1/4", got {ratio!r}'
        )
    if not 0 <= ratio <= 1:
        raise ParameterError(f"the interleaving ratio must lie in [0, 1], got {ratio}")
    return ratio


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
