"""PrME: which positions a round sends, decided alike by everyone who knows the decrypted history.

Source: DictPFL, by a summary of the paper, "Prune-for-Minimum-Encrypt": temporal inactivity pruning and holistic
reactivation correction.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from collections import deque
from itertools import pairwise
from typing import Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import as_count, as_unsigned, as_vector
from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, RangeError, WireFormatError
from shieldfl.masks import Mask, positions_in_budget
from shieldfl.methods.dict_pfl.settings import PruningSettings
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.settings import plain_settings
from shieldfl.stateful import refuse_unless

_SHORTEST_SECRET_BYTES = 16
_REMEMBERED_ROUNDS = 64


class PruningHistory:
    """What all clients and the key authority know alike: each position's small rounds and its probability.

    A round's active positions are those that are not pruned, and every pruned position i with the probability p_i.
    Their decrypted global update is then observed:

    - The small ones are the k of smallest magnitude, of equal ones those at the lower positions. k is
      floor(s P / 100) less the positions that were not sent (at least 0), or floor(s n / 100) of the n sent ones
      (``PruningSettings.ranked``).
    - A position that is small in tau observed rounds running is pruned; one that is sent and not small starts anew.
    - A pruned position that was reactivated shows all that the clients held back. If it is small
      even so, it stays pruned and p_i becomes beta p_i; else it is active again, and its p_i min(1, p_i / beta).

    At least one position is always active: fewer are small than are sent.

    Who is reactivated comes from SHAKE-256 of HMAC-SHA256(secret, round), 32 bits a position, so it is the same on
    every machine and with every version of NumPy. It is hidden from whoever lacks the secret, under the assumption that
    HMAC-SHA256 is a pseudorandom function and SHAKE-256 a generator. The aggregator must have neither the
    secret nor the decrypted updates; what it sees is how many values a round encrypts.

    Parameters
    ----------
    size : int
        P, the number of trained parameters, at least 1.
    secret : bytes
        Shared by clients and authority, at least 16 random bytes, of this federation alone.
    settings : PruningSettings
        The same for all.

    Raises
    ------
    ParameterError
        For a size of 0 or a secret that is too short.
    """

    changes: ClassVar = {
        "_observed": list[int],
        "_tried": int,
        "_returned": int,
        "_streaks": NDArray[np.uint16],
        "_probabilities": NDArray[np.float64],
        "_drawn": tuple[int, Mask] | None,
    }

    def __init__(self, size: int, secret: bytes, settings: PruningSettings | None = None) -> None:
        self._size = as_count(size, "size")
        check_secret(secret)
        self._secret = secret
        self._settings = settings or PruningSettings()
        self._rounds = deque([0] * _REMEMBERED_ROUNDS, maxlen=_REMEMBERED_ROUNDS)
        self._tried = self._returned = 0
        # A streak of tau means pruned.
        self._streaks = np.zeros(self._size, dtype=np.uint16)
        self._probabilities = np.full(self._size, self._settings.first_probability)
        # Of one round alone: observing a round draws it, so what was drawn before that is never asked for again.
        self._drawn: tuple[int, Mask] | None = None

    @property
    def _observed(self) -> list[int]:
        return list(self._rounds)

    @_observed.setter
    def _observed(self, rounds: list[int]) -> None:
        self._rounds = deque(rounds, maxlen=_REMEMBERED_ROUNDS)

    def check_changed(self) -> None:
        """Raise WireFormatError for rounds, streaks or probabilities of other sizes or out of range."""
        rounds, chances = list(self._rounds), self._probabilities
        refuse_unless(len(rounds) == _REMEMBERED_ROUNDS and self._streaks.size == chances.size == self._size)
        refuse_unless(rounds[0] >= 0 and all(old < new or old == new == 0 for old, new in pairwise(rounds)))
        # NaN fails the comparisons; and some position is always active.
        refuse_unless(bool(((chances >= 0.0) & (chances <= 1.0)).all()))
        refuse_unless(bool(self._streaks.min() < self._settings.patience_rounds >= self._streaks.max()))
        refuse_unless(0 <= self._returned <= self._tried)
        refuse_unless(self._drawn is None or self._drawn[1].size == self._size)

    @property
    def last_round(self) -> int:
        """The round that was observed last; 0 before the first."""
        return self._rounds[-1]

    @property
    def pruned(self) -> int:
        """How many positions are pruned, those among them that the next round tries again included."""
        return int(np.count_nonzero(self._streaks == self._settings.patience_rounds))

    @property
    def tried(self) -> int:
        """How often a pruned position was tried again in the rounds that this object observed."""
        return self._tried

    @property
    def returned(self) -> int:
        """How often such a trial showed no small update, so that the position was active again."""
        return self._returned

    def has_observed(self, round_number: int) -> bool:
        """Say whether a round was observed. Only the last 64 are remembered: of rounds before them it says yes."""
        return round_number in self._rounds or round_number < self._rounds[0]

    def tag(self, round_number: int, active: Mask) -> bytes:
        """Return what tells those who share the secret, and nobody else, whether they would send the same positions.

        HMAC-SHA256 of the round, the last observed round and ``active_mask(round_number)``.
        """
        numbers = Message.from_number(round_number) + Message.from_number(self.last_round)
        return hmac.digest(self._secret, b"shieldfl active positions" + numbers + active.to_bytes(), "sha256")

    def active_mask(self, round_number: int) -> Mask:
        """Return the positions that every client sends in a round after the last observed one.

        Raises ParameterError for a round that is over.
        """
        round_number = as_unsigned(round_number, "round_number")
        if round_number <= self.last_round:
            raise ParameterError(
                f"round {round_number} is over: round {self.last_round} was observed already"
            )
        if self._drawn is None or self._drawn[0] != round_number:
            key = hmac.digest(self._secret, b"shieldfl reactivation %d" % round_number, "sha256")
            draws = np.frombuffer(hashlib.shake_256(key).digest(4 * self._size), dtype="<u4")
            kept = self._streaks < self._settings.patience_rounds
            self._drawn = round_number, Mask.from_bool(kept | (draws < self._probabilities * 2.0**32))
        return self._drawn[1]

    def observe(self, round_number: int, global_update: Any) -> None:
        """Learn from a round's decrypted global update. Rounds that gave none are left out by all alike.

        Parameters
        ----------
        round_number : int
            Later than the last observed one.
        global_update : ndarray of float32 or float64, shape (n,)
            The values at the n positions of ``active_mask(round_number)``, ascending; bit for bit the same for all.

        Raises
        ------
        ArrayTypeError, ParameterError, RangeError
            For an array of another kind, a round that is over or another number of values, and values that are not
            finite. The history stays as it was.
        """
        sent = self.active_mask(round_number).to_bool()
        update = as_vector(global_update, (np.float32, np.float64), "the global update")
        count = int(np.count_nonzero(sent))
        if update.size != count:
            raise ParameterError(f"round {round_number} sent {count} positions, the update has {update.size}")
        if not np.isfinite(update).all():
            raise RangeError("the global update has NaN or infinity: leave this round out on every client")
        small = np.zeros(self._size, dtype=np.bool_)
        small[sent] = _smallest(np.abs(update), self._count_small(count))
        patience, decay = self._settings.patience_rounds, self._settings.decay
        retried = sent & (self._streaks == patience)
        self._probabilities[retried & small] *= decay
        found = retried & ~small
        self._tried += int(np.count_nonzero(retried))
        self._returned += int(np.count_nonzero(found))
        self._probabilities[found] = np.minimum(1.0, self._probabilities[found] / decay)
        self._streaks[small] = np.minimum(self._streaks[small], patience - 1) + 1
        self._streaks[sent & ~small] = 0
        self._rounds.append(int(round_number))

    def to_bytes(self) -> bytes:
        """Write the state for a client that joins late or starts again.

        It holds what settings prune by, as JSON, the last 64 observed rounds, streaks and probabilities (10 bytes a
        position), not the secret. It tells which positions are pruned: it must not reach the aggregator in the clear.
        """
        return Message(
            {
                "settings": _stated(self._settings),
                "rounds": np.array(self._rounds, dtype="<u8").tobytes(),
                "streaks": self._streaks.astype("<u2").tobytes(),
                "probabilities": self._probabilities.astype("<f8").tobytes(),
            }
        ).to_bytes()

    @classmethod
    def from_bytes(
        cls, state: bytes, size: int, secret: bytes, settings: PruningSettings | None = None
    ) -> PruningHistory:
        """Read what :meth:`to_bytes` wrote, for the size, secret and settings that all share.

        Raises WireFormatError for damaged bytes or another size, ParameterError for other settings.
        """
        history = cls(size, secret, settings)
        message = Message.from_bytes(state)
        streaks = message.vector("streaks", np.uint16, history._size)
        probabilities = message.vector("probabilities", np.float64, history._size)
        if message["settings"] != _stated(history._settings):
            raise ParameterError("the state was written under other settings: give those of the federation")
        rounds = message.vector("rounds", np.uint64, _REMEMBERED_ROUNDS)
        history._rounds.extend(rounds.tolist())
        history._streaks = streaks.astype(np.uint16)
        history._probabilities = probabilities.astype(np.float64)
        history.check_changed()
        return history

    def _count_small(self, sent: int) -> int:
        ranked, not_sent = (self._size, self._size - sent) if self._settings.ranked == "all" else (sent, 0)
        share = self._settings.small_percent / 100.0
        # Rounding must not make all of them small.
        quota = min(positions_in_budget(share, ranked), ranked - 1)
        return max(0, quota - not_sent)


def check_secret(secret: bytes) -> None:
    """Raise ParameterError unless a federation's secret is bytes, and enough of them."""
    if not isinstance(secret, bytes) or len(secret) < _SHORTEST_SECRET_BYTES:
        raise ParameterError(f"the secret must be at least {_SHORTEST_SECRET_BYTES} random bytes")


def _stated(settings: PruningSettings) -> bytes:
    """Write what histories must have in common: no setting of layers or encryption, which a method adds."""
    return msgspec.json.encode(plain_settings(settings, PruningSettings), order="sorted")


def _smallest(magnitudes: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Choose exactly ``count`` of the smallest values; of equal ones those that come first."""
    if count == 0:
        return np.zeros(magnitudes.size, dtype=np.bool_)
    bound = np.partition(magnitudes, count - 1)[count - 1]
    chosen: NDArray[np.bool_] = magnitudes < bound
    ties = np.flatnonzero(magnitudes == bound)
    chosen[ties[: count - np.count_nonzero(chosen)]] = True
    return chosen


HISTORY = "history"
"""The message part's name."""

_BYTES_PER_POSITION = 10
_MOST_OTHER_BYTES = 4096


def history_part(history: PruningHistory) -> bytes:
    """Write the part: the compressed history. The round's signature binds it to the round and to the model beside it.

    It tells which positions are pruned: it must not reach the aggregator in the clear.
    """
    return zlib.compress(history.to_bytes())


def read_history(message: Message, size: int, secret: bytes, settings: PruningSettings) -> PruningHistory:
    """Read what :func:`history_part` wrote, of a message whose signature was looked at: it says whose uploads count.

    Raises WireFormatError for one that is damaged or of another size, ParameterError for other settings.
    """
    # No part of a message may unpack to more memory than a history takes.
    decompressor = zlib.decompressobj()
    try:
        state = decompressor.decompress(message[HISTORY], _BYTES_PER_POSITION * size + _MOST_OTHER_BYTES)
    except zlib.error as error:
        raise WireFormatError("the pruning history is damaged") from error
    if not decompressor.eof or decompressor.unused_data:
        raise WireFormatError("the pruning history is truncated, of another model, or has bytes behind it")
    return PruningHistory.from_bytes(state, size, secret, settings)


def model_message(model: GlobalModel, history: PruningHistory) -> Message:
    """Encode the model with the history: a client that was away for rounds needs nothing else."""
    return Message({**model.to_message(), HISTORY: history_part(history)})
