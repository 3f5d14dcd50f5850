"""Answers that an authority's store has, and the state that goes on with it has nothing of."""

from __future__ import annotations

from collections.abc import Iterable

from shieldfl.errors import PolicyError

__all__ = ["UnheardAnswers"]


class UnheardAnswers:
    """The rows of the journal of such answers, and those of them that were asked for again.

    While there are some that were not, nothing else is answered: what is asked then does not follow from them.
    """

    def __init__(self, rows: Iterable[int] = ()) -> None:
        self.rows = frozenset(rows)
        self.asked: set[int] = set()

    def check_asked(self) -> None:
        """Raise PolicyError unless all were asked for again."""
        left = len(self.rows - self.asked)
        if left:
            raise PolicyError(
                f"the state that this authority goes on from was kept before {left} of its answers, and what came of "
                "them is not in there: restore the newest state, or pass the same requests on again"
            )
