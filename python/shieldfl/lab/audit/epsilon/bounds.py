"""What an epsilon must at least be, after how well somebody told who was in.

A mechanism that is (epsilon, delta)-private bounds how often guesses about single members can be right. Guesses that
were right more often disprove so small an epsilon, with a confidence that is stated; guesses that were not prove
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom

from shieldfl.errors import ParameterError

_LARGEST = 64.0
"""An epsilon at which guesses are never wrong, to the last digit of a float64."""


@dataclass(frozen=True)
class EpsilonBound:
    """An epsilon that was disproved."""

    at_least: float
    """The mechanism is not (epsilon, delta)-private for any epsilon below; 0 where nothing is disproved."""
    delta: float
    confidence: float
    """Of a mechanism that is private with such an epsilon, at most 1 - confidence of all audits say more."""
    unit: Literal["sample", "client"]
    """Whose presence was guessed."""
    source: str
    claimed: float | None = None
    """What the mechanism's accountant says, for the same unit and delta; None where nobody says anything."""

    @property
    def contradicts_claim(self) -> bool:
        """Whether the claim is among what is disproved."""
        return self.claimed is not None and self.at_least > self.claimed


@dataclass(frozen=True)
class Guesses:
    """How many guesses were made, by a number that was settled beforehand, and how many of them were right."""

    made: int
    right: int


def bound_from_one_run(
    canaries: int,
    guesses: Sequence[Guesses],
    *,
    delta: float,
    unit: Literal["sample", "client"],
    confidence: float = 0.95,
    claimed: float | None = None,
) -> EpsilonBound:
    """Bound epsilon by guesses about canaries of which each was in or out by a coin.

    Source: Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run", corollary 5.4. Canaries of
    independent runs may be counted together, since each was in one run alone.

    Parameters
    ----------
    canaries : int
        m, those on which no guess was made included.
    guesses : sequence of Guesses
        One, or several of which the best counts: the chance to be wrong is shared out evenly among them.
    delta : float
        In [0, 1).
    unit : "sample" or "client"
        What a canary was.
    confidence : float
        In (0, 1).
    claimed : float, optional
        Goes into the result.

    Raises
    ------
    ParameterError
        For a number or probability out of range.
    """
    _check(delta, confidence)
    if not guesses or not all(0 <= g.right <= g.made <= canaries for g in guesses):
        raise ParameterError(
            "there are as many canaries as guesses or more, and no more guesses are right than made"
        )
    error = (1 - confidence) / len(guesses)

    def excess(epsilon: float, guessed: Guesses) -> float:
        return one_run_p_value(canaries, guessed, epsilon, delta) - error

    disproved = [
        float(brentq(excess, 0.0, _LARGEST, args=(guessed,), xtol=1e-6))
        for guessed in guesses
        if excess(0.0, guessed) < 0 < excess(_LARGEST, guessed)
    ]
    source = "Steinke, Nasr and Jagielski 2023, corollary 5.4"
    return EpsilonBound(max(disproved, default=0.0), delta, confidence, unit, source, claimed)


def one_run_p_value(canaries: int, guesses: Guesses, epsilon: float, delta: float) -> float:
    """Bound the chance that so many guesses are right if the mechanism is (epsilon, delta)-private, in [0, 1]."""
    made, right = guesses.made, guesses.right
    accuracy = expit(epsilon)  # of randomised response, which is the best that there is at delta = 0
    p_value = binom.sf(right - 1, made, accuracy)
    if delta > 0 and right > 0:
        fewer = np.arange(1, right + 1)
        between = np.cumsum(binom.pmf(right - fewer, made, accuracy))
        p_value += 2 * canaries * delta * (between / fewer).max()
    return float(min(p_value, 1.0))


def _check(delta: float, confidence: float) -> None:
    if not (0 <= delta < 1 and 0 < confidence < 1):
        raise ParameterError(f"delta lies in [0, 1) and confidence in (0, 1), got {delta} and {confidence}")


SHARES = (0.02, 0.1, 0.5, 1.0)
"""Of the canaries to guess: few where a mechanism shows little, all where it shows all."""


def guess_presence(evidence: NDArray[np.float64], count: int) -> NDArray[np.int8]:
    """Guess by the sign of the evidence where it is strongest, 1 for in and -1 for out; 0, no guess, elsewhere.

    Source: Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run", algorithm 1.

    Parameters
    ----------
    evidence : ndarray of float64, shape (m,)
        Positive where presence is likelier than absence.
    count : int
        Guesses to make, 0 to m; ParameterError for others.
    """
    if not 0 <= count <= len(evidence):
        raise ParameterError(f"of {len(evidence)} canaries {count} cannot be guessed")
    strongest = np.argsort(-np.abs(evidence), kind="stable")[:count]
    guessed = np.zeros(len(evidence), dtype=np.int8)
    guessed[strongest] = np.where(evidence[strongest] > 0, 1, -1)
    return guessed


def count_guesses(
    evidence: NDArray[np.float64], included: NDArray[np.bool_], shares: Sequence[float] = SHARES
) -> list[Guesses]:
    """Guess a share of the canaries, for each of several shares, and count what was right.

    Parameters
    ----------
    evidence : ndarray of float64, shape (m,)
        Positive where presence is likelier than absence.
    included : ndarray of bool, shape (m,)
        Which were in.
    shares : sequence of float
        Of the canaries to guess, each in (0, 1], settled before the run; ParameterError for others.
    """
    if not all(0 < share <= 1 for share in shares):
        raise ParameterError("the shares of canaries to guess lie in (0, 1]")
    made = []
    for share in shares:
        guessed = guess_presence(evidence, max(1, round(share * len(evidence))))
        right = ((guessed > 0) == included) & (guessed != 0)
        made.append(Guesses(int(np.count_nonzero(guessed)), int(right.sum())))
    return made
