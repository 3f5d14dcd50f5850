"""What a key authority remembers of the totals that it opened: which, how much, and the newest answer."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import PolicyError

__all__ = ["MOST_OPENED_COEFFICIENTS", "Answer", "OpenedTotals"]

MOST_OPENED_COEFFICIENTS = 2**32
"""Under one key: that no opened sum holds encryption noise is proved for so many (docs/packings.md)."""


class Answer(NamedTuple):
    """What an opening gave: the sums, float64 (count,), and the sum of encrypted weights, if there are any."""

    sums: NDArray[np.float64]
    weight_sum: float | None

    def copy(self) -> Answer:
        """Return one whose sums are the receiver's own."""
        return Answer(self.sums.copy(), self.weight_sum)


class OpenedTotals:
    """One total for each round, a budget for the key, and the first answer to the newest total. Not thread-safe.

    A total that is asked for again gets the answer that it got, not another computation: whoever sees a right and a
    faulty one of a Paillier total knows the key. Memory is bounded by keeping the newest alone; an older total is
    opened again, with the same result and all checks.

    Parameters
    ----------
    digests : of the total that was opened, by round.
    coefficients : that were opened so far.
    """

    def __init__(self, digests: dict[int, str], coefficients: int) -> None:
        self.digests = digests
        self.coefficients = coefficients
        self._newest: tuple[str, Answer] | None = None

    def find(self, round_number: int, digest: str) -> Answer | None:
        """Return the first answer to this total, None if it has to be opened. Raises PolicyError for another one."""
        if self.digests.get(round_number, digest) != digest:
            raise PolicyError(
                f"a different total of round {round_number} was opened before: the difference of the two could "
                "be one client's update. Start a new round"
            )
        if self._newest is None or self._newest[0] != digest:
            return None
        return self._newest[1].copy()

    def check_budget(self, round_number: int, digest: str, coefficients: int) -> None:
        """Raise PolicyError where so many coefficients more are too many for the key."""
        if self.coefficients + self._cost(round_number, digest, coefficients) > MOST_OPENED_COEFFICIENTS:
            raise PolicyError(
                f"this key has opened {self.coefficients:,} coefficients, and {coefficients:,} more would pass the "
                f"{MOST_OPENED_COEFFICIENTS:,} that one key may: make a new key authority"
            )

    def remember(
        self, round_number: int, digest: str, coefficients: int, answer: Answer, *, keep: bool
    ) -> None:
        """Take note of an answer before it leaves, and keep it, if so asked, for :meth:`find`."""
        self.coefficients += self._cost(round_number, digest, coefficients)
        self.digests[round_number] = digest
        if keep:
            self._newest = digest, answer.copy()

    def forget_answer(self) -> None:
        """Drop the answer that is kept; which totals were opened, and how much, stays known."""
        self._newest = None

    def _cost(self, round_number: int, digest: str, coefficients: int) -> int:
        # The same sums once more tell nothing more.
        return 0 if self.digests.get(round_number) == digest else coefficients
