"""Which rounds of Alt-FL are of which kind.

Source: Alt-FL, algorithms 1 to 3, line 2, and section IV-B. The ratio ρ = ρ_a / ρ_tot, in lowest terms, is the
share of rounds of the *second* kind: ρ_a of every ρ_tot rounds. The first kind is the authentic round of SI/DP
and SI/HE and the encrypted round of PI, the second kind their synthetic round and PI's DP round.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from shieldfl.errors import ParameterError

__all__ = ["AlternatingSchedule"]


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
