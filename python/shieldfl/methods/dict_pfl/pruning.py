"""PrME: which positions a round sends, decided alike by all who know the decrypted history; what they hold.

Source: DictPFL, by a summary of the paper, "Prune-for-Minimum-Encrypt": temporal inactivity pruning and holistic
reactivation correction.
"""

from __future__ import annotations

import hashlib
import hmac
import zlib
from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from shieldfl.authority.message import Message
from shieldfl.encryption.registry import DEFAULT_ENCRYPTION
from shieldfl.errors import ParameterError, RangeError, WireFormatError
from shieldfl.learning.local_update import DoubleVector, FloatVector
from shieldfl.masks import Mask, positions_in_budget
from shieldfl.methods.encrypted_update import smallest
from shieldfl.methods.encryption_settings import WeighedEncryption
from shieldfl.methods.noised_sums import SumDelta, SumNoiseOption
from shieldfl.rounds.plan import GlobalModel
from shieldfl.settings import Count, Probability, Share, about, plain_settings
from shieldfl.stateful import refuse_unless

_REMEMBERED_ROUNDS = 64
_OF_PRUNING = ("small_percent", "patience_rounds", "decay", "first_probability", "ranked")


@dataclass(frozen=True)
class DictPflSettings(SumNoiseOption):
    """How layers are factorised, positions pruned and values encrypted, and whether sums have noise.

    What the model's layers allow is checked where they are known.
    """

    encryption: WeighedEncryption = DEFAULT_ENCRYPTION
    delta: SumDelta = 1e-5
    small_percent: Annotated[
        float,
        Meta(ge=0.0, lt=100.0),
        about(
            "How many positions a round's update counts as small, of those ranked; 0 prunes nothing.",
            symbol="s",
        ),
    ] = 70.0
    patience_rounds: Annotated[
        int,
        Meta(ge=1, le=2**16 - 1),
        about("A position is pruned when it was small in so many rounds running.", symbol="tau"),
    ] = 3
    decay: Annotated[
        Share, about("What a vain reactivation multiplies a position's probability by.", symbol="beta")
    ] = 0.2
    first_probability: Annotated[
        Probability,
        about(
            "Of a reactivation, for a position that is pruned for the first time; 0 never tries one again. The summary "
            "does not state it; beta is as if the tau small rounds were a vain reactivation.",
            symbol="p",
        ),
    ] = 0.2
    ranked: Annotated[
        Literal["all", "sent"],
        about(
            "Of which positions s % are small. all: a position that was not sent has the update 0 and counts as small, "
            "so at most s % are pruned. sent: of those sent in the round, so pruning goes on without a limit."
        ),
    ] = "all"
    rank: Annotated[
        Count, about("At most the smaller side of every weight matrix that is factorised.", symbol="r")
    ] = 4
    train_fully: Annotated[
        tuple[str, ...],
        about(
            "Modules, by their names in the model, whose weights are trained themselves and not factorised."
        ),
    ] = ()


class PruningHistory:
    """What all clients and the key authority know alike: each position's small rounds and its probability.

    A round's active positions are those that are not pruned, and every pruned position i with the probability p_i.
    Their decrypted global update is then observed:

    - The small ones are the k of smallest magnitude, of equal ones those at the lower positions. k is
      floor(s P / 100) less the positions that were not sent (at least 0), or floor(s n / 100) of the n sent ones
      (``ranked``).
    - A position that is small in tau observed rounds running is pruned; one that is sent and not small starts anew.
    - A pruned position that was reactivated shows all that the clients held back. If it is small
      even so, it stays pruned and p_i becomes beta p_i; else it is active again, and its p_i min(1, p_i / beta).

    At least one position is always active: fewer are small than are sent.

    Who is reactivated comes from SHAKE-256 of HMAC-SHA256(secret, round), 32 bits a position, so it is the same on
    every machine and with every version of NumPy. It is hidden from whoever lacks the secret, under the assumption that
    HMAC-SHA256 is a pseudorandom function and SHAKE-256 a generator. The aggregator must have neither the
    secret nor the decrypted updates; what it sees is how many values a round encrypts.
    """

    changes: ClassVar = {
        "_observed": list[int],
        "tried": int,
        "returned": int,
        "_streaks": NDArray[np.uint16],
        "_probabilities": DoubleVector,
        "_drawn": tuple[int, Mask] | None,
    }

    def __init__(self, size: int, secret: bytes, settings: DictPflSettings | None = None) -> None:
        self._size, self._secret = size, secret
        self._settings = settings or DictPflSettings()
        self._observed = [0] * _REMEMBERED_ROUNDS
        """The newest rounds, in their order."""
        self.tried = self.returned = 0
        """How often a pruned position was tried again in the rounds that this object observed, and showed no
        small update, so that it was active again."""
        # A streak of tau means pruned.
        self._streaks = np.zeros(self._size, dtype=np.uint16)
        self._probabilities = np.full(self._size, self._settings.first_probability)
        # Of one round alone: observing a round draws it, so what was drawn before that is never asked for again.
        self._drawn: tuple[int, Mask] | None = None

    def check_changed(self) -> None:
        rounds, chances = self._observed, self._probabilities
        refuse_unless(len(rounds) == _REMEMBERED_ROUNDS and self._streaks.size == chances.size == self._size)
        refuse_unless(rounds[0] >= 0 and all(old < new or old == new == 0 for old, new in pairwise(rounds)))
        # NaN fails the comparisons; and some position is always active.
        refuse_unless(bool(((chances >= 0.0) & (chances <= 1.0)).all()))
        refuse_unless(bool(self._streaks.min() < self._settings.patience_rounds >= self._streaks.max()))
        refuse_unless(0 <= self.returned <= self.tried)
        refuse_unless(self._drawn is None or self._drawn[1].size == self._size)

    @property
    def last_round(self) -> int:
        """The round that was observed last; 0 before the first."""
        return self._observed[-1]

    @property
    def pruned(self) -> int:
        """How many positions are pruned, those among them that the next round tries again included."""
        return int(np.count_nonzero(self._streaks == self._settings.patience_rounds))

    def has_observed(self, round_number: int) -> bool:
        """Say whether a round was observed. Only the last 64 are remembered: of rounds before them it says yes."""
        return round_number in self._observed or round_number < self._observed[0]

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

    def observe(self, round_number: int, global_update: FloatVector | DoubleVector) -> None:
        """Learn from a round's decrypted global update. Rounds that gave none are left out by all alike.

        These are the values at the n positions of ``active_mask(round_number)``, ascending; bit for bit the
        same for all. Raises ParameterError for a round that is over, RangeError for values that are not
        finite; the history stays.
        """
        sent = self.active_mask(round_number).to_bool()
        if not np.isfinite(global_update).all():
            raise RangeError("the global update has NaN or infinity: leave this round out on every client")
        small = np.zeros(self._size, dtype=np.bool_)
        small[sent] = smallest(np.abs(global_update), self._count_small(global_update.size))
        patience, decay = self._settings.patience_rounds, self._settings.decay
        retried = sent & (self._streaks == patience)
        self._probabilities[retried & small] *= decay
        found = retried & ~small
        self.tried += int(np.count_nonzero(retried))
        self.returned += int(np.count_nonzero(found))
        self._probabilities[found] = np.minimum(1.0, self._probabilities[found] / decay)
        self._streaks[small] = np.minimum(self._streaks[small], patience - 1) + 1
        self._streaks[sent & ~small] = 0
        self._observed = [*self._observed[1:], round_number]

    def to_bytes(self) -> bytes:
        """Write the state, not the secret: it must not reach the aggregator, for it tells what is pruned."""
        return Message(
            {
                "settings": _stated(self._settings),
                "rounds": np.array(self._observed, dtype="<u8").tobytes(),
                "streaks": self._streaks.astype("<u2").tobytes(),
                "probabilities": self._probabilities.astype("<f8").tobytes(),
            }
        ).to_bytes()

    @classmethod
    def from_bytes(
        cls, state: bytes, size: int, secret: bytes, settings: DictPflSettings | None = None
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
        history._observed = rounds.tolist()
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


def _stated(settings: DictPflSettings) -> bytes:
    """Write what histories must have in common: no setting of layers or encryption."""
    plain = plain_settings(settings)
    return msgspec.json.encode({name: plain[name] for name in _OF_PRUNING}, order="sorted")


HISTORY = "history"
"""The message part with the compressed history, which the round's signature binds to the model beside it."""

_BYTES_PER_POSITION = 10
_MOST_OTHER_BYTES = 4096


def read_history(message: Message, size: int, secret: bytes, settings: DictPflSettings) -> PruningHistory:
    """Read what :func:`model_message` wrote, once the signature was looked at: it says whose uploads count.

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
    return Message({**model.to_message(), HISTORY: zlib.compress(history.to_bytes())})


class HeldBack:
    """Values of float32, one a position, in three parts.

    - The update of this round. Another training in the same round, before it is sent, replaces it.
    - What was uploaded last, until it is known what became of it: it counts where its round was observed, is lost where
      that round's sum was of no use, and is sent again where that round was given up.
    - All that earlier rounds trained and did not send.
    """

    changes: ClassVar = {
        "_unsent": FloatVector,
        "_update": FloatVector,
        "_uploaded": FloatVector,
        "_round": int,
        "_uploaded_round": int | None,
    }

    def __init__(self, size: int) -> None:
        self._size = size
        self._unsent = np.zeros(self._size, dtype=np.float32)
        self._update = np.zeros_like(self._unsent)
        self._uploaded = np.zeros_like(self._unsent)
        self._round = 0
        self._uploaded_round: int | None = None

    def check_changed(self) -> None:
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

    def train(self, update: FloatVector) -> None:
        """Take this round's update (P,). Raises RangeError, unchanged."""
        with np.errstate(over="ignore", invalid="ignore"):
            total = self._unsent + update + self._uploaded
        if not np.isfinite(total).all():
            raise RangeError(
                "the update has NaN or infinity: lower the learning rate or check the client's data"
            )
        self._update[:] = update

    def values_at(self, active: Mask) -> FloatVector:
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
        for part in (self._unsent, self._update, self._uploaded):
            part[:] = 0.0

    def _total(self) -> FloatVector:
        return self._unsent + self._update + self._uploaded
