"""Guesses which canaries were there, by how strong the evidence is of each.

Source: Steinke, Nasr and Jagielski 2023, "Privacy auditing with one (1) training run", algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shieldfl.audit.epsilon.bounds import Guesses
from shieldfl.errors import ParameterError

__all__ = ["SHARES", "count_guesses", "guess_presence"]

SHARES = (0.02, 0.1, 0.5, 1.0)
"""Of the canaries to guess: few where a mechanism shows little, all where it shows all."""


def guess_presence(evidence: NDArray[np.float64], count: int) -> NDArray[np.int8]:
    """Guess by the sign of the evidence where it is strongest, 1 for in and -1 for out; 0, no guess, elsewhere.

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
