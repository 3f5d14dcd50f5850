"""A client: its enrolment, the sums that it may open, and its side of a round, with each message once."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from shieldfl.array_view import FloatVector, as_unsigned
from shieldfl.authority.message import Message, Part
from shieldfl.authority.round_key_check import INVITED, RoundKeyReader
from shieldfl.authority.total_opener import ClientKeys, GrantedKeys
from shieldfl.errors import ParameterError, PolicyError, WireFormatError
from shieldfl.learning.local_update import LocalUpdate, StartingPoint
from shieldfl.masks import Mask
from shieldfl.privacy.events import ClearUpload, EncryptedUpload, Noise, NoisedUpload, NoiseShareUpload
from shieldfl.rounds.opening_rule import ClientOpening, OpenedTogether, OpeningRule, Replies, missed_parts
from shieldfl.rounds.plan import OPENED, FederationPlan, GlobalModel, RoleContext, joined
from shieldfl.rounds.reports import Disclosure, Reporter
from shieldfl.stateful import refuse_unless

__all__ = ["PUBLIC_PARTS", "TrainingClient", "check_invited"]

PUBLIC_PARTS = ("weight", "capability")
"""Names of message parts that are the same for all data: the number of samples, the machine's speed."""

_NO_SCORES: FloatVector = np.empty(0, dtype=np.float32)


def check_invited(
    frame: Part, plan: FederationPlan, client: int, participants: int, round_number: int
) -> None:
    """Raise PolicyError unless the client is invited and the number of participants is the signed one.

    Noise depends on the number of participants, so a messenger must not state another one.
    """
    invited = Mask.from_bytes(frame, expected_size=plan.clients)
    if client not in invited.to_indices():
        raise PolicyError(f"client {client} is not invited to round {round_number}: nothing is trained")
    if invited.count != participants:
        raise PolicyError(
            f"round {round_number} is said to have {participants} participants, but the key authority signed "
            f"that {invited.count} are invited: nothing is trained or sent"
        )


class TrainingClient(Reporter, metaclass=abc.ABCMeta):
    """One client: its data's update, its model, the public keys and, if clients enrol, its own keys.

    It sends nothing before training has finished, and no second reply. A subclass defines what it keeps,
    ``_keep``, and sends, ``_make``. Once a message of a round tells of an update, the round's other messages
    are of that update: a mask that was chosen for one must not decide what of another leaves in the clear.
    ``initial`` has all float buffers; ``shares_buffers``: whether the global model has them;
    ``keeps_buffers``: whether the client keeps those of its own training from round to round, beside the
    global parameters.
    """

    changes: ClassVar[Mapping[str, Any]] = {
        "_round_keys": RoundKeyReader | None,
        "_own_keys": ClientKeys | None,
        "_opening": ClientOpening | None,
        "disclosure": Disclosure,
        "round": int,
        "start": GlobalModel,
        "update": GlobalModel,
        "trained_scores": FloatVector,
        "scores": str | None,
        "has_trained": bool,
        "_has_told": bool,
        "_beginnings": int,
        "_begun": StartingPoint | None,
        "_begun_with": tuple[int, Message] | None,
        "_replies": Replies,
        "_buffers": FloatVector | None,
    }

    awaits_secret = False
    """Whether the client only enrols, since the secret that clients share derives from what it is granted."""

    def __init__(
        self,
        index: int,
        initial: GlobalModel,
        context: RoleContext,
        *,
        shares_buffers: bool = True,
        keeps_buffers: bool = False,
    ) -> None:
        super().__init__()
        self.index = index
        self.context = context
        self._round_keys = RoundKeyReader(context.keys) if context.keys.parameters else None
        self._own_keys = ClientKeys(context.keys, index) if context.keys.enrols else None
        self.needs_sealing = self._own_keys is not None
        self._opening: ClientOpening | None = None
        self._initial = initial
        self.disclosure = Disclosure.of_nothing(initial.parameters.size)
        """What has left the client in its round, and how it was protected; each message adds to it.

        Another round starts from nothing. A round that is begun again keeps what it had.
        """
        self.round = 0
        self.start = initial
        self.update = initial
        """The trained model itself, not its difference from the start."""
        self.trained_scores: FloatVector = _NO_SCORES
        self._size, self._buffer_count = initial.parameters.size, initial.buffers.size
        self.scores = context.scores
        self._shares_buffers = shares_buffers
        self.has_trained = False
        self._has_told = False
        self._beginnings = 0
        self._begun: StartingPoint | None = None
        self._begun_with: tuple[int, Message] | None = None
        self._replies = Replies()
        self._keeps_buffers = keeps_buffers
        self._buffers = initial.buffers if keeps_buffers else None

    def check_changed(self) -> None:
        keys, scores, own = self.context.keys, self.trained_scores, self._buffers
        refuse_unless((self._round_keys is None) == (not keys.parameters))
        refuse_unless((self._own_keys is not None) == keys.enrols)
        refuse_unless(self._own_keys is None or self._own_keys.round == self.round)
        refuse_unless((self._opening is not None) == self.context.clients_open)
        self._check_untold(self.context.plan.rounds, {self.index})
        refuse_unless(self.disclosure.is_of(self._size))
        refuse_unless(0 <= self.round <= self.context.plan.rounds and self._beginnings >= 0)
        refuse_unless(self.scores in (None, self.context.scores) and bool(np.isfinite(scores).all()))
        trained = LocalUpdate(
            None, self.update.parameters, self.update.buffers, scores if scores.size else None
        )
        trained.check(self._size, self._buffer_count)
        refuse_unless((own is not None) == self._keeps_buffers)
        refuse_unless(own is None or (own.size == self._buffer_count and bool(np.isfinite(own).all())))
        begun, models = self._begun, [self.start]
        refuse_unless((begun is None) == (self._begun_with is None))
        if begun is None:
            refuse_unless(not self.has_trained and not self._has_told)
        else:
            refuse_unless((begun.round, begun.beginning) == (self.round, self._beginnings))
            models.append(GlobalModel(begun.parameters, begun.buffers))
        sizes = ((self._size, 0), (self._size, self._buffer_count))
        refuse_unless(all((one.parameters.size, one.buffers.size) in sizes for one in models))

    def enrolment(self) -> Message:
        """Return the request to enrol, for the key authority, on a channel that proves who sent it."""
        own = self._own_keys
        return Message() if own is None else Message({"enrolment": own.enrolment.request})

    def enrolled(self, answer: Message) -> None:
        if self._opening is not None and self._own_keys is not None:
            with self._lock:
                self._opening.keys.grant(self._own_keys.enrolment.granted(answer["grant"]))

    def granted_secret(self) -> bytes:
        """Return a secret that all clients and the key authority have, once this one is enrolled."""
        with self._lock:
            if self._opening is None:
                raise PolicyError("this client is granted nothing that others have")
            return self._opening.keys.shared_secret()

    def catch_up(self, missed: Sequence[Message]) -> None:
        """Open the ends of rounds that the client was not in, of the aggregator's ``missed``: each once."""
        with self._lock:
            if self._opening is not None:
                self._opening.catch_up(missed)
            elif missed:
                raise PolicyError("this client opens nothing: it needs no ends of rounds that it was not in")

    def open_by(self, rule: OpeningRule, keys: GrantedKeys) -> None:
        self._opening = ClientOpening(rule, keys, self)

    def open_together(self, together: OpenedTogether) -> None:
        if self._opening is not None:
            self._opening.together = together

    def global_model(self, model: Message) -> Message:
        """Return the newest global model: what a message brings, or what this client has opened."""
        with self._lock:
            return model if self._opening is None else self._opening.opener.newest_model()

    def _round_key(self, purpose: str) -> Any:
        """Return what the client encrypts under in this round: the public key, or one of its own."""
        assert self._round_keys is not None
        if self._own_keys is not None:
            return self._own_keys.key(purpose)
        return self._round_keys.key(self.round, purpose)

    def begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Take the round's first message; return the model to train from. A refused message changes nothing.

        Nor does a repeated one. With another model or number the round is to be trained anew; that is refused
        once a message has told of its update.
        """
        number = as_unsigned(round_number, "round_number")
        participants = as_unsigned(participants, "participants")
        if self.awaits_secret:
            raise PolicyError("this client can only enrol: make it again with its grant")
        # Rounds protect differently: none may begin while an update is handed in, or a message made, for
        # another one.
        with self._lock:
            if self._begun is not None and number < self.round:
                raise PolicyError(f"round {number} is over since round {self.round} began")
            if self._begun is not None and number == self.round:
                if model and (participants, model) == self._begun_with:
                    return self._begun
                if self._has_told:
                    raise PolicyError(
                        f"round {number} began with another model or number of participants, and the client "
                        "has sent something of it: begin a later round"
                    )
            self._check_round(number, participants)
            begun_with = participants, model
            if self._round_keys is not None:
                first, missed = model, list[Message]()
                if self._opening is not None:
                    first, missed = missed_parts(model, self._opening.together.read)
                self.context.keys.check_model(first, number, self.index)
                check_invited(first[INVITED], self.context.plan, self.index, participants, number)
                if self._opening is not None:
                    model = self._opening.begin_round(number, first, missed)
            elif not model.keys() <= GlobalModel.parts:
                # No signature says what belongs to the message, and it is kept whole.
                raise WireFormatError(f"the first message of round {number} has parts that no model has")
            start = self._begin_round(number, participants, model)
            self._beginnings += 1
            self._begun = replace(start, round=number, beginning=self._beginnings)
            self._begun_with = begun_with
            self._has_told = False
            return self._begun

    def _check_round(self, round_number: int, participants: int) -> None:
        plan = self.context.plan
        if not plan.min_clients <= participants <= plan.most_participants:
            raise PolicyError(
                f"round {round_number} is said to have {participants} participants: the set-up needs at "
                f"least {plan.min_clients} of {plan.clients}, and has room for {plan.most_participants}: "
                "nothing is trained or sent"
            )
        self.context.check_round(round_number)

    def _begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        start = self._read_model(model)
        if self._own_keys is not None:
            self._own_keys.begin_round(round_number)  # first: what it refuses must move nothing else
        if self._round_keys is not None:
            self._round_keys.begin_round(round_number, model)
        # A round that is begun again has disclosed what it had: its messages are repeated.
        if round_number != self.round:
            self.disclosure = Disclosure.of_nothing(self._size)
        self.round = round_number
        self.has_trained = False
        self.start = start
        return replace(self._merged_model(start), scores=self.scores)

    def finish_training(self, update: LocalUpdate) -> None:
        """Take the trained update; its vectors may be written over later.

        A refused update changes nothing.
        """
        with self._lock:
            if self._begun is None or update.round != self.round:
                trained_in = "no round" if update.round is None else f"round {update.round}"
                client_in = "no round" if self._begun is None else f"round {self.round}"
                raise PolicyError(f"the update was trained in {trained_in}, and the client is in {client_in}")
            if update.beginning != self._begun.beginning:
                raise PolicyError(
                    f"round {self.round} was begun again since the update's training began: train from what "
                    "begin_round returned last"
                )
            if self._has_told:
                raise PolicyError(
                    f"a message of round {self.round} has told of the update that was trained before, and "
                    "the others will be of that one too: go on with the round's phases, or leave it"
                )
            own = update.copied()
            own.check(self._size, self._buffer_count)
            self._keep(own)
            self.has_trained = True

    def _keep(self, update: LocalUpdate) -> None:
        """Keep the trained model and its scores. If it raises, it must have changed nothing."""
        self.trained_scores = _NO_SCORES if self.scores is None else update.checked_scores()
        self.update = GlobalModel(update.parameters, update.buffers)

    def step(self, phase: str, answer: Message | None) -> Message:
        """Make this phase's message from the answer to the one before: the same again when asked again."""
        self.context.check_phase(phase)
        with self._lock:
            given = self._replies.given(phase, self.round, answer)
            if given is not None:
                return given
            if not self.has_trained:
                raise ParameterError("there is nothing to send before training has finished")
            self.context.check_answer(phase, self.round, answer)
            if phase == OPENED:
                last = self.context.phase_before(OPENED)
                assert self._opening is not None, "a phase of federations whose clients open"
                assert last is not None
                told = self._opening.tell(self.round, last, answer)
                message = Message({"round": Message.from_number(self.round), **told})
                return self._replies.keep(phase, self.round, answer, message)
            asked, before, reported = answer, self.disclosure, self.pending()
            if (
                self._opening is not None
                and answer is not None
                and self.context.phase_before(phase) == OPENED
            ):
                answer = self._opening.goes_on(self.round, answer)
            try:
                message = Message({"round": Message.from_number(self.round), **self._make(phase, answer)})
            except BaseException:
                # Nothing has left: made again, the message is to be recorded.
                self.disclosure = before
                self.take_back(reported)
                raise
            self._record(before, self.disclosure)
            self._has_told |= not message.keys() <= {"round", *PUBLIC_PARTS}
            return self._replies.keep(phase, self.round, asked, message)

    def _record(self, before: Disclosure, now: Disclosure) -> None:
        for part in now.parts:
            if part not in before.parts and self._tells(part):
                self.record(ClearUpload(self.round, self.index, part, now.synthetic))
        if replace(now, parts=()) == replace(before, parts=()):
            return
        encrypts_buffers = self._buffer_count > 0 and now.buffers == "encrypted"
        noise = now.noise if now.encrypts_noised and now.encrypted.count else None
        if noise is not None:
            self.record(self._encrypted_event(noise, now.synthetic))
        if encrypts_buffers or (now.encrypted.count and noise is None):
            # Statistics of the data have no noise, whatever the parameters have.
            self.record(self._encrypted_event(None, now.synthetic))
        if now.noised.count and now.noise is not None:
            self.record(NoisedUpload(self.round, self.index, now.noise))
        without_proof = now.noised.count and now.noise is None
        if now.clear.count or without_proof or (self._buffer_count and now.buffers in ("clear", "noised")):
            self.record(ClearUpload(self.round, self.index, synthetic=now.synthetic))

    def _encrypted_event(self, noise: Noise | None, synthetic: bool) -> EncryptedUpload | NoiseShareUpload:
        return EncryptedUpload(self.round, self.index, noise, synthetic)

    def _tells(self, part: str) -> bool:
        """Say whether a message part in the clear depends on the data: all that is not public does."""
        return part not in PUBLIC_PARTS

    @abc.abstractmethod
    def _make(self, phase: str, answer: Message | None) -> Message:
        """Make the phase's message, but for its round, and state what it discloses."""

    def _difference(self) -> FloatVector:
        """Return training's change of the global model, float32 (P + B,); B is 0 where buffers stay local."""
        # What is too large for a float32 is refused where it is clipped, encrypted or added.
        with np.errstate(over="ignore"):
            parameters = self.update.parameters - self.start.parameters
            if not self._shares_buffers:
                return parameters
            return joined(parameters, self.update.buffers - self.start.buffers)

    def end_round(self, answer: Message) -> None:
        with self._lock:
            opened = answer if self._opening is None else self._opening.open(answer)
            if opened is not None:  # else the model stays
                self._end_round(opened)

    def _end_round(self, answer: Message) -> None:
        if self._keeps_buffers:
            self._buffers = self.update.buffers

    def forget_round(self) -> None:
        """Drop what only the round's messages need, once they have arrived and another round comes next."""
        with self._lock:
            if self._begun is None or self._begun_with is None:
                return
            initial = self._initial
            if self._has_told:
                self._replies.forget()
            else:
                self.has_trained = False  # begun again, the round is trained anew
            self.trained_scores, self.start, self.update = _NO_SCORES, initial, initial
            self._begun = replace(self._begun, parameters=initial.parameters, buffers=initial.buffers)
            self._begun_with = self._begun_with[0], Message()  # which no round begins with

    def merged_model(self, model: Message) -> StartingPoint:
        """Return the client's own model, given the global one: what it would use for inference."""
        with self._lock:
            return self._merged_model(self._read_model(self.global_model(model)))

    def _merged_model(self, current: GlobalModel) -> StartingPoint:
        return current.starting_point(self._buffers)

    def _read_model(self, model: Message) -> GlobalModel:
        return GlobalModel.from_message(model, self._size, self._buffer_count if self._shares_buffers else 0)
