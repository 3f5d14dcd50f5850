"""What a client of DictPFL trained that does not count yet, so that every update counts once."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import as_unsigned, as_vector
from shieldfl.errors import ParameterError, RangeError
from shieldfl.masks import Mask
from shieldfl.methods.dict_pfl.consistent_pruning import PruningHistory
from shieldfl.stateful import Stateful, refuse_unless

__all__ = ["HeldBack"]


class HeldBack(Stateful):
    """Values of float32, one a position, in three parts.

    - The update of this round. Another training in the same round, before it is sent, replaces it.
    - What was uploaded last, until it is known what became of it: it counts where its round was observed, is lost where
      that round's sum was of no use, and is sent again where that round was given up.
    - All that earlier rounds trained and did not send.

    Parameters
    ----------
    size : P, the number of trained parameters.
    """

    changes: ClassVar = {
        "_unsent": NDArray[np.float32],
        "_update": NDArray[np.float32],
        "_uploaded": NDArray[np.float32],
        "_round": int,
        "_uploaded_round": int | None,
    }

    def __init__(self, size: int) -> None:
        self._size = as_unsigned(size, "size")
        self._unsent = np.zeros(self._size, dtype=np.float32)
        self._update = np.zeros_like(self._unsent)
        self._uploaded = np.zeros_like(self._unsent)
        self._round = 0
        self._uploaded_round: int | None = None

    def check_changed(self) -> None:
        """Raise WireFormatError for values that are not finite, of other sizes, or of rounds before the first."""
        super().check_changed()
        parts = (self._unsent, self._update, self._uploaded)
        refuse_unless(all(one.size == self._size and np.isfinite(one).all() for one in parts))
        refuse_unless(self._round >= 0 and 0 <= (self._uploaded_round or 0) <= self._round)

    def begin_round(self, round_number: int, history: PruningHistory, spoiled: int = -1) -> None:
        """Settle the last upload by the history, and keep the update of the round before, unless it is begun again.

        ``spoiled`` is the newest round whose sum was answered for and of no use to anybody who does as agreed.
        """
        self.settle(history, spoiled)
        if round_number != self._round:
            self._unsent += self._update
            self._update[:] = 0.0
        self._round = round_number

    def train(self, update: Any) -> None:
        """Take this round's update, float32 (P,). Raises ArrayTypeError, ParameterError, or RangeError, unchanged."""
        vector = as_vector(update, (np.float32,), "the update")
        if vector.size != self._unsent.size:
            raise ParameterError(f"the update has {vector.size} values, expected {self._unsent.size}")
        with np.errstate(over="ignore", invalid="ignore"):
            total = self._unsent + vector + self._uploaded
        if not np.isfinite(total).all():
            raise RangeError(
                "the update has NaN or infinity: lower the learning rate or check the client's data"
            )
        self._update[:] = vector

    def values_at(self, active: Mask) -> NDArray[np.float32]:
        """Copy what is held at the active positions, ascending: what an upload has to bring."""
        return active.gather(self._total())

    def mark_uploaded(self, active: Mask) -> None:
        """Note that this round's upload was made, from :meth:`values_at` the active positions."""
        total, is_active = self._total(), active.to_bool()
        self._uploaded = np.where(is_active, total, np.float32(0.0))
        self._unsent = np.where(is_active, np.float32(0.0), total)
        self._update[:] = 0.0
        self._uploaded_round = self._round

    def settle(self, history: PruningHistory, spoiled: int = -1) -> None:
        """Forget what was uploaded, if its round was observed, or may have been spoiled.

        Whoever has spoiled a sum may know by what, and have the sum: what was in it must not come again in another one.
        """
        round_number = self._uploaded_round
        if round_number is not None and (round_number <= spoiled or history.has_observed(round_number)):
            self._uploaded[:] = 0.0

    def forget(self) -> None:
        """Forget everything."""
        for part in (self._unsent, self._update, self._uploaded):
            part[:] = 0.0

    def _total(self) -> NDArray[np.float32]:
        return self._unsent + self._update + self._uploaded
