"""DictPFL (NeurIPS 2025): small tables are trained, quiet positions are not sent, all that is sent is encrypted.

What is trained is decided before: :mod:`shieldfl.methods.dict_pfl.dictionary_layers` factorises the model, and its flat
vector holds tables, biases and norms alone. Here P is the size of that vector.
"""

from __future__ import annotations

import copy
import hmac
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from shieldfl.authority.message import Message
from shieldfl.encryption.registry import weighing_encryptions
from shieldfl.errors import ParameterError, PolicyError, RangeError, WireFormatError
from shieldfl.learning.local_update import DoubleVector, FloatVector, LocalUpdate, StartingPoint
from shieldfl.masks import Mask
from shieldfl.methods.dict_pfl.pruning import (
    DictPflSettings,
    HeldBack,
    PruningHistory,
    model_message,
    read_history,
)
from shieldfl.methods.encrypted_update import (
    UPDATE,
    MixedTotal,
    encrypted_positions,
    opened_mean,
)
from shieldfl.methods.masked_average.method import (
    MaskedAverage,
    MaskedAverageAggregator,
    MaskedAverageClient,
)
from shieldfl.methods.noised_sums import OF_NOISY_SUMS, opened_shares
from shieldfl.privacy.events import NO_NOISE
from shieldfl.rounds.method import NamedMethod
from shieldfl.rounds.opening_rule import OpeningRule, RoundSums
from shieldfl.rounds.plan import FederationPlan, GlobalModel, Phase, RoleContext, joined
from shieldfl.rounds.reports import Disclosure
from shieldfl.stateful import refuse_unless

if TYPE_CHECKING:
    from torch import nn

# Its tag is made with the shared secret, and a client looks whether it is its own.
COUNT = Phase("count", answered_by_authority=True, opens=None, signs_answer=False)
"""Says how many values the round encrypts. The aggregator must know it before the first batch, which must not decide
it, and must not know more; the clients' messages carry nothing. A tag beside it tells clients alone whether they have
the same active positions as the authority."""


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
    """Finds the active positions from the history that comes with the model, and sends their values close-packed.

    A batch is of n values, positions 0 to n - 1: which of the model's parameters these are stands nowhere in it. What
    was trained elsewhere is held back until its position is active again, and so is an upload whose round was given up
    (:class:`HeldBack`). An update whose values do not fit what is encrypted is forgotten with all that was held back:
    otherwise it would be refused again in every later round.

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
        """Add the update to what is held back, in place of an earlier one of this round that was not sent."""
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
                "the key authority expects the values of other positions than this client has active: "
                "begin the round again from the newest model"
            )
        return Mask.full(count)

    def _vector(self, answer: Message | None) -> FloatVector | DoubleVector:
        """Return the active positions' values, then buffers' differences (n,); with noise, whole numbers."""
        values = self._held.values_at(self._active)
        if self.method.noise is not None:
            return self._share_of(values)[0]
        return joined(values, self.update.buffers - self.start.buffers)

    @property
    def _noised(self) -> Mask:
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
            # Zeros in place of what was forgotten would draw the mean towards them.
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
        """How many clients send."""

    def first_model(self) -> Message:
        return model_message(self._initial, self._history)

    def keeps(self, model: Message) -> bool:
        return model == model_message(self.model, self._history)

    def answer(self, phase: str, message: Message, sums: RoundSums) -> Message:
        """Return the new global model for a total, and for a question how many values a round encrypts.

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
"""Of positions that may be pruned: rotated values of a 25th still fit the bits planned for all."""


class DictPfl(MaskedAverage):
    """DictPFL for one federation.

    A shared secret, at least 16 random bytes, goes to clients and key authority, never to the aggregator.
    Raises ParameterError where there is none, or a shorter one, and as :class:`MaskedAverage` does.
    """

    names = (
        NamedMethod(
            "dict-pfl",
            "a small factor of each large weight, and whole biases, norms, embeddings and layers of your choice, "
            "encrypted",
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
                "dict-pfl: pruning may leave so few positions that their values do not fit the bits planned for all, "
                "and are cut; this costs accuracy, and no epsilon"
            )

    @classmethod
    def adapted(cls, model: nn.Module, settings: DictPflSettings) -> nn.Module:
        """Return the factorised model. Its flat vector is far shorter; ``merged`` makes a plain model of the result.

        Raises as ``factorise`` does: ParameterError, and RangeError if a weight that is replaced is not finite.
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
