"""DictPFL (NeurIPS 2025): clients train small tables, send no quiet positions, and encrypt all they send.

What is trained is decided before: :mod:`shieldfl.methods.dict_pfl.dictionary_layers` factorises the model,
and its flat vector holds tables, biases and norms alone. Here P is the size of that vector.
"""

from __future__ import annotations

import copy
import hashlib
import hmac
import zlib
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import msgspec
import numpy as np
from msgspec import Meta
from numpy.typing import NDArray

from shieldfl.array_view import FloatVector
from shieldfl.authority.message import Message
from shieldfl.encryption.registry import DEFAULT_ENCRYPTION, weighing_encryptions
from shieldfl.errors import ParameterError, PolicyError, RangeError, WireFormatError
from shieldfl.learning.local_update import DoubleVector, LocalUpdate, StartingPoint
from shieldfl.masks import Mask, positions_in_budget
from shieldfl.methods.encrypted_update import (
    UPDATE,
    MixedTotal,
    encrypted_positions,
    opened_mean,
    smallest,
)
from shieldfl.methods.encryption_settings import WeighedEncryption
from shieldfl.methods.masked_average.method import (
    MaskedAverage,
    MaskedAverageAggregator,
    MaskedAverageClient,
)
from shieldfl.methods.noised_sums import OF_NOISY_SUMS, SumDelta, SumNoiseOption, opened_shares
from shieldfl.privacy.events import NO_NOISE
from shieldfl.rounds.method import NamedMethod
from shieldfl.rounds.opening_rule import OpeningRule, RoundSums
from shieldfl.rounds.plan import FederationPlan, GlobalModel, Phase, RoleContext, joined
from shieldfl.rounds.reports import Disclosure
from shieldfl.settings import Count, Probability, Share, about, plain_settings
from shieldfl.stateful import refuse_unless

if TYPE_CHECKING:
    from torch import nn

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
            "Percentage of the ranked positions whose update counts as small in a round; 0 prunes nothing.",
            symbol="s",
        ),
    ] = 70.0
    patience_rounds: Annotated[
        int,
        Meta(ge=1, le=2**16 - 1),
        about("Consecutive rounds with a small update after which a position is pruned.", symbol="tau"),
    ] = 3
    decay: Annotated[
        Share,
        about("Factor of a position's reactivation probability after a reactivation in vain.", symbol="beta"),
    ] = 0.2
    first_probability: Annotated[
        Probability,
        about(
            "Reactivation probability of a position that is pruned for the first time; 0 never "
            "reactivates. The paper's summary does not state it. The default, beta, counts the tau small "
            "rounds as one reactivation in vain.",
            symbol="p",
        ),
    ] = 0.2
    ranked: Annotated[
        Literal["all", "sent"],
        about(
            "Positions among which s % count as small. all: a position that was not sent has update 0 "
            "and counts as small, so at most s % are pruned. sent: the positions sent in the round, so "
            "pruning has no limit."
        ),
    ] = "all"
    rank: Annotated[
        Count,
        about(
            "Rank of the factorisation; at most the smaller side of every factorised weight matrix.",
            symbol="r",
        ),
    ] = 4
    train_fully: Annotated[
        tuple[str, ...],
        about("Names of modules whose weights are trained as they are, without factorisation."),
    ] = ()


class PruningHistory:
    """What all clients and the key authority know alike: each position's small rounds and its probability.

    A round's active positions are those that are not pruned, and every pruned position i with the probability
    p_i. Their decrypted global update is then observed:

    - The small ones are the k of smallest magnitude, of equal ones those at the lower positions. k is
      floor(s P / 100) less the positions that were not sent (at least 0), or floor(s n / 100) of the n sent
      ones (``ranked``).
    - A position that is small in tau observed rounds running is pruned; one that is sent and not small starts
        anew.
    - A pruned position that was reactivated shows all that the clients held back. If it is small
      even so, it stays pruned and p_i becomes beta p_i; else it is active again, and its p_i min(1, p_i /
      beta).

    At least one position is always active: fewer are small than are sent.

    Which ones are reactivated comes from SHAKE-256 of HMAC-SHA256(secret, round), 32 bits a position, so it
    is the same on every machine and with every version of NumPy. Without the secret it is hidden, under the
    assumption that HMAC-SHA256 is a pseudorandom function and SHAKE-256 a generator. The aggregator must
    have neither the secret nor the decrypted updates; what it sees is how many values a round encrypts.
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
        """Numbers of the newest observed rounds, ascending; 0 before the first."""
        self.tried = self.returned = 0
        """How often the observed rounds tried a pruned position again, and how often its update was not
        small, so that it became active again."""
        # A streak of tau means pruned.
        self._streaks = np.zeros(self._size, dtype=np.uint16)
        self._probabilities = np.full(self._size, self._settings.first_probability)
        # Of one round alone: observing a round draws it, so what was drawn before that is never asked for
        # again.
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

    def __eq__(self, other: object) -> bool:
        """Say whether both decide alike from here on; what was drawn for a round follows from the rest."""
        return isinstance(other, PruningHistory) and (
            self is other or (self._secret, self.to_bytes()) == (other._secret, other.to_bytes())
        )

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # it changes

    @property
    def last_round(self) -> int:
        """The round that was observed last; 0 before the first."""
        return self._observed[-1]

    @property
    def pruned(self) -> int:
        """How many positions are pruned, those among them that the next round tries again included."""
        return int(np.count_nonzero(self._streaks == self._settings.patience_rounds))

    def has_observed(self, round_number: int) -> bool:
        """Say whether a round was observed.

        Only the last 64 are remembered: of rounds before them it says yes.
        """
        return round_number in self._observed or round_number < self._observed[0]

    def tag(self, round_number: int, active: Mask) -> bytes:
        """Return a tag by which only holders of the secret see whether they would send the same positions.

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
"""Name of the message part with the compressed history, which the round's signature binds to the model."""

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
    - What was uploaded last, until it is known what became of it: it counts where its round was observed, is
      lost where that round's sum was of no use, and is sent again where that round was given up.
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
        """Settle the last upload by the history; keep the previous round's update, unless begun again.

        ``spoiled`` is the newest round whose sum was answered for but of no use to honest clients.
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

        A client that has spoiled a sum may know by what, and have the sum: its values must not come again in
        another one.
        """
        round_number = self._uploaded_round
        if round_number is not None and (round_number <= spoiled or history.has_observed(round_number)):
            self._uploaded[:] = 0.0

    def forget(self) -> None:
        for part in (self._unsent, self._update, self._uploaded):
            part[:] = 0.0

    def _total(self) -> FloatVector:
        return self._unsent + self._update + self._uploaded


# Its tag is made with the shared secret, and a client looks whether it is its own.
COUNT = Phase("count", answered_by_authority=True, opens=None, signs_answer=False)
"""Phase in which the authority says how many values the round encrypts.

The aggregator must know it before the first batch, which must not decide it, and must not know more; the
clients' messages carry nothing. A tag beside it tells clients alone whether they have the same active
positions as the authority.
"""


class DictPflAggregator(MaskedAverageAggregator):
    """Adds batches of as many values as the key authority says; which positions they are, nobody tells it."""

    def _zone_from(self, round_number: int, answer: Message | None) -> Mask | None:
        """Take the number of values from the answer to the phase before."""
        if answer is None:
            return None
        count = answer.number("count")
        if count > self.context.plan.update_size:
            raise WireFormatError("the answer states more values than an update has")
        return Mask.full(count)

    def _conclude(self) -> Message:
        return Message({"round": Message.from_number(self.round)})


class DictPflClient(MaskedAverageClient):
    """Finds active positions from the history that comes with the model; sends their values close-packed.

    A batch is of n values, positions 0 to n - 1: which of the model's parameters these are stands nowhere in
    it. What was trained elsewhere is held back until its position is active again, and so is an upload whose
    round was given up (:class:`HeldBack`). An update whose values do not fit what is encrypted is forgotten
    with all that was held back: otherwise it would be refused again in every later round.

    Where sums have noise, it clips what it has at the active positions as a whole. Which positions are
    active, and how many, follows from the sums that were opened, all of which have noise, and from the shared
    secret, which no data decide: so neither tells more of a client than those sums do. What it holds back is
    its own, and leaves it in later sums alone, each of which is charged for the whole norm, and which have no
    more values than the plan of noise has. What an upload was clipped by does not come back.
    """

    changes: ClassVar = {"_held": HeldBack, "_active": Mask, "_tag": bytes}

    def __init__(
        self,
        method: DictPfl,
        context: RoleContext,
        index: int,
        weight: int,
        initial: GlobalModel,
        secret: bytes,
    ) -> None:
        super().__init__(method, context, index, weight, initial)
        self._secret = secret
        self._settings = method.own
        self._held = HeldBack(self._size)
        self._active = Mask.full(self._size)
        self._tag = b""

    def check_changed(self) -> None:
        refuse_unless(self._active.size == self._size)

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Train from the global model, whose history shows what became of the last upload.

        All positions move, also those that will not be sent.
        """
        history = read_history(model, self._size, self._secret, self._settings)
        active = history.active_mask(round_number)
        start = super()._begin_round(round_number, participants, model)
        self._active, self._tag = active, history.tag(round_number, active)
        spoiled = -1 if self._opening is None else self._opening.newest_spoiled(UPDATE.name)
        self._held.begin_round(round_number, history, spoiled)
        return start

    def _keep(self, update: LocalUpdate) -> None:
        """Add the update to what is held back; it replaces one of this round that was not sent."""
        self._held.train(update.parameters - self.start.parameters)
        super()._keep(update)

    def _speak(self) -> Message:
        return Message()

    def _zone_from(self, answer: Message | None) -> Mask:
        count = self._active.count + self._sent_buffers
        if (
            answer is None
            or answer.number("count") != count
            or not hmac.compare_digest(answer["tag"], self._tag)
        ):
            raise PolicyError(
                "the key authority expects other active positions than this client's: begin the round "
                "again from the newest model"
            )
        return Mask.full(count)

    def _vector(self, answer: Message | None) -> FloatVector | DoubleVector:
        """Return the active positions' values, then buffers' differences (n,); with noise, whole numbers."""
        values = self._held.values_at(self._active)
        if self.method.noise is not None:
            return self._share_of(values)[0]
        return joined(values, self.update.buffers - self.start.buffers)

    @property
    def _summed(self) -> Mask:
        return self._active

    def _shares_in(self, sent: DoubleVector) -> DoubleVector:
        return sent

    def _make(self, phase: str, answer: Message | None) -> Message:
        try:
            message = super()._make(phase, answer)
        except RangeError as error:
            if error.position is not None:  # of what is sent: tell where in the model
                sent = encrypted_positions(self._active, self._sent_buffers)
                error.position, error.size = int(sent.to_indices()[error.position]), sent.size
            self._held.forget()
            # Zeros instead of what was forgotten would draw the mean towards them.
            self.has_trained = False
            raise
        if phase == "update":
            self._held.mark_uploaded(self._active)
        return message

    def _disclose(self, zone: Mask) -> None:
        nothing = Mask.empty(self._size)
        if self.method.noise is not None:
            self._state(Disclosure(self._active, nothing, nothing, parts=self.clear_parts))
            return
        # How many values the batch holds follows from what was trained before, and the aggregator is told it.
        parts = (*self.clear_parts, "count")
        self._state(Disclosure(self._active, nothing, nothing, parts=parts, buffers="encrypted"))


class DictPflRule(OpeningRule):
    """The mean at the active positions moves the model, and the history, which is sent with it."""

    changes: ClassVar = {"model": GlobalModel, "_history": PruningHistory}

    def __init__(
        self, method: DictPfl, context: RoleContext, initial: GlobalModel, history: PruningHistory
    ) -> None:
        super().__init__(context)
        self.model = self._initial = initial
        self._method = method
        self._history = history
        self._buffers = initial.buffers.size
        """Number of buffers that clients send."""

    def first_model(self) -> Message:
        return model_message(self._initial, self._history)

    def keeps(self, model: Message) -> bool:
        return model == model_message(self.model, self._history)

    def answer(self, phase: str, message: Message, sums: RoundSums) -> Message:
        """Return the new global model for a total, or how many values a round encrypts for a question.

        Raises PolicyError for rounds that do not run or were answered.
        """
        number = message.number("round")
        # Clients who have begun a later round may have sent what the total of this one holds again.
        sums.check_runs()
        if phase == UPDATE.name:
            return self._moved(number, message, sums)
        if number <= self._history.last_round:
            raise PolicyError(f"round {number} has been answered: begin a later round")
        active = self._history.active_mask(number)
        count = Message.from_number(active.count + self._buffers)
        return Message({"count": count, "tag": self._history.tag(number, active)})

    def _moved(self, number: int, message: Message, sums: RoundSums) -> Message:
        active = self._history.active_mask(number)
        count = active.count + self._buffers
        claim = MixedTotal.read(message, "", self.context.parameters, count, number, has_rest=False)
        if claim.positions != Mask.full(count):
            raise WireFormatError("the total leaves out values that every client sends")
        if (noise := self._method.noise) is None:
            values = opened_mean(claim, self.context, sums)
        else:
            values, _ = opened_shares(noise, self.context, claim, sums, noise.clip_norm)
        # Back at their positions; the others stay where they are.
        mean = np.zeros(active.size + self._buffers)
        encrypted_positions(active, self._buffers).scatter(values, mean)
        moved = self.model.moved_finite(mean, self.context.plan.server_learning_rate)
        # In a copy: should the answer not leave, what is here is what it was.
        history = copy.deepcopy(self._history)
        history.observe(number, values[: active.count])
        self._history, self.model = history, moved
        sums.note(
            f"{history.pruned:,} of {active.size:,} trained positions are pruned after round {number}; "
            f"pruned ones were tried again {history.tried:,} times, and {history.returned:,} times became "
            "active again",
            "pruning",
        )
        return model_message(self.model, self._history)


_SHORTEST_SECRET_BYTES = 16
_MOST_PERCENT_THAT_FIT = 96.0
"""Largest percentage of pruned positions: rotated values of a 25th still fit the bits planned for all."""


class DictPfl(MaskedAverage):
    """DictPFL for one federation.

    A shared secret, at least 16 random bytes, goes to clients and key authority, never to the aggregator.
    Raises ParameterError where there is none, or a shorter one, and as :class:`MaskedAverage` does.
    """

    names = (
        NamedMethod(
            "dict-pfl",
            "a small factor of each large weight, and whole biases, norms, embeddings and layers of your "
            "choice, encrypted",
            "fine-tuning large models",
            "DictPFL (NeurIPS 2025)",
            DictPflSettings(),
        ),
    )
    privacy_reading = NO_NOISE
    aggregator_sees = "ciphertexts, their number, which follows from all clients' updates, and weights"

    phases = (COUNT, UPDATE)

    needs_shared_secret = True
    schemes = weighing_encryptions()

    aggregator_kind = DictPflAggregator
    # What clients hold back would tell, by and by, in which rounds they were.
    noisy_reading = replace(OF_NOISY_SUMS, if_participation_hidden=None)

    def __init__(self, name: str, settings: DictPflSettings, plan: FederationPlan) -> None:
        super().__init__(name, settings, plan, None, sends_rest=False)
        if self.noise is not None:
            self.hides_all = True
            self.aggregator_sees = "ciphertexts and their number, which follows from opened sums"
        few_may_stay = settings.small_percent > (0.0 if settings.ranked == "sent" else _MOST_PERCENT_THAT_FIT)
        if self.noise is not None and few_may_stay:
            self.notes.append(
                "dict-pfl: pruning may leave so few positions that their values do not fit the bits planned "
                "for all, and are cut; this costs accuracy, and no epsilon"
            )

    @classmethod
    def adapted(cls, model: nn.Module, settings: DictPflSettings) -> nn.Module:
        """Return the factorised model.

        Its flat vector is far shorter; ``merged`` makes a plain model of the result.

        Raises as ``factorise`` does: ParameterError, and RangeError if a weight that is replaced is not
        finite.
        """
        from shieldfl.methods.dict_pfl.dictionary_layers import factorise

        return factorise(model, settings.rank, settings.train_fully)

    def _client(
        self, context: RoleContext, index: int, weight: int, initial: GlobalModel, shared_secret: bytes | None
    ) -> DictPflClient:
        return DictPflClient(self, context, index, weight, initial, _secret_of(shared_secret))

    def _opening_rule(
        self, initial: GlobalModel, context: RoleContext, shared_secret: bytes | None
    ) -> DictPflRule:
        history = PruningHistory(self.plan.parameters, _secret_of(shared_secret), self.own)
        return DictPflRule(self, context, self._shared(initial), history)


def _secret_of(shared_secret: bytes | None) -> bytes:
    if shared_secret is None:
        raise ParameterError(
            "clients and key authority of dict-pfl share a secret: draw one, and give it to them"
        )
    if not isinstance(shared_secret, bytes) or len(shared_secret) < _SHORTEST_SECRET_BYTES:
        raise ParameterError(f"the secret must be at least {_SHORTEST_SECRET_BYTES} random bytes")
    return shared_secret
