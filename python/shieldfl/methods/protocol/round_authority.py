"""A key authority's side of every round's begin: keys of the round and the model it keeps, both signed."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from shieldfl.array_view import as_unsigned
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.invited import Invitations
from shieldfl.methods.protocol.replies import Replies
from shieldfl.methods.protocol.reports import Note, Tally
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.methods.protocol.steps import AuthoritySteps
from shieldfl.privacy.events import OpenedSum
from shieldfl.roles.granted_keys import GrantedKeys
from shieldfl.roles.message import Message
from shieldfl.roles.round_key_check import INVITED, digest_of_parts
from shieldfl.roles.round_signer import RoundSigner
from shieldfl.roles.total_opener import TotalOpener
from shieldfl.scheme.encryption import SchemeTotal
from shieldfl.stateful import refuse_unless

__all__ = ["RoundAuthority"]

_NO_MODEL = {"keys", "_replies", "_invitations", "_untold"}
"""What changes of every authority, and decides nothing of an answer's numbers."""


class RoundAuthority(AuthoritySteps):
    """Begins rounds; what it opens in them is for ``_answer``, which replies to the last phase with the new model.

    It takes no model from anybody: the aggregator, which passes its messages on, could bring one that it has chosen. So
    all clients of a round train from one model, or find out.

    Parameters
    ----------
    context : what all roles of the federation know.
    keys : the rounds' keys, which open the totals.
    """

    changes: ClassVar = {"keys": RoundSigner, "_replies": Replies, "_invitations": Invitations}

    def __init__(self, context: RoleContext, keys: RoundSigner) -> None:
        super().__init__()
        self.context = context
        self.keys = keys
        self._replies = Replies()
        self._invitations = Invitations(context.plan)

    def check_changed(self) -> None:
        """Raise WireFormatError for other rounds or phases than the plan's, and a last answer of another model."""
        super().check_changed()
        self._check_untold(self.context.plan.rounds, range(self.context.plan.clients))
        rounds, phases = self.context.plan.rounds, self.context.answered
        refuse_unless(-1 <= self.keys.newest_round <= rounds)
        refuse_unless(all(self._replies.newest(phase)[0] <= rounds for phase in phases))
        refuse_unless(self._replies.phases <= set(phases))
        refuse_unless(self._keeps(self.newest_model()))

    def enrol(self, client: int, enrolment: Message) -> Message:
        """Share with a client, from now on, what its request says; it gets nothing, since nothing is for it to open."""
        number = as_unsigned(client, "client")
        if number >= self.context.plan.clients:
            raise ParameterError(f"the plan has clients 0 to {self.context.plan.clients - 1}")
        with self._lock:
            self.keys.enrol(number, enrolment["enrolment"])
        return Message()

    def revoke(self, client: int) -> None:
        """Answer no list any more that has a client in it."""
        with self._lock:
            self.keys.revoke(client)

    def close(self) -> None:
        """Give up the file of the authority's memory, where it has one."""
        self.keys.close()

    def newest_model(self) -> Message:
        """Return the answer to the last phase of the last round that came so far; before that, the initial model."""
        with self._lock:
            _, newest = self._replies.newest(self.context.phases[-1])
            return self._first_model() if newest is None else newest

    def replace_model(self, model: GlobalModel) -> None:
        """Go on from another model than the last sum came to, where this opens sums in the aggregator's place.

        Raises ParameterError where a round starts from more than a model's numbers.
        """
        raise ParameterError(
            "rounds of this method start from more than a model's numbers, so that no server's optimiser can step in "
            "between: take FedAvg, or a method such as full-he"
        )

    def newest_answer(self, phase: str) -> int:
        """Return the last round that was answered in a phase; -1 before the first."""
        return self._replies.newest(phase)[0]

    def last_answer(self, phase: str) -> Message | None:
        """Return what was answered last in a phase; None before the first."""
        return self._replies.newest(phase)[1]

    def begin_round(
        self, round_number: int, invited: Iterable[int] | None = None, model: bytes = b""
    ) -> Message:
        """Make the round's keys, wipe those of the round before, sign them, the model and who is invited."""
        number = as_unsigned(round_number, "round_number")
        with self._lock:
            asked = self._invitations.settled(number, invited)
            first, keys = self._enter(number)
            frame = asked.to_bytes()
            signatures = self._signatures(first, frame)
            # What is signed is all that may differ, and to sign the same again gives the same bytes.
            self.keys.keep_first_message(number, digest_of_parts(Message(signatures)))
            self._invitations.settle(number, asked)
            return Message({**first, INVITED: frame, **keys, **signatures})

    def enter_round(self, round_number: int) -> Message:
        """Begin a round where this opens sums in a client's or the aggregator's place: return its model, unsigned."""
        with self._lock:
            model, _ = self._enter(as_unsigned(round_number, "round_number"))
            return model

    def _enter(self, number: int) -> tuple[Message, dict[str, bytes]]:
        with self.clock.stage("open"):
            if not 1 <= number <= self.context.plan.rounds:
                raise PolicyError(
                    f"round {number} is none of the plan's {self.context.plan.rounds:,}: no keys are made for it"
                )
            if number <= self._replies.newest(self.context.phases[-1])[0]:
                raise PolicyError(f"round {number} has been answered: begin a later round")
            model = self.newest_model()
            return model, self.keys.begin_round(number, self._purposes(number, model))

    def answer(self, phase: str, message: Message) -> Message:
        """Turn the aggregator's result into the answer to the clients; a repeated message gets its answer again.

        Raises ParameterError for a phase that the key authority does not answer, PolicyError for another message of a
        round that was answered and for what would reveal too much, WireFormatError, RangeError. Then nothing has
        changed, but for what was opened.
        """
        # Under another name an answer would not count as the round's: another could follow, and so could another model.
        self.context.check_answered(phase)
        with self._lock:
            return self._answer(phase, message)

    def standing(self) -> dict[str, Any]:
        """Return what decides, beside its keys, what a message is answered with: values, which no step changes."""
        return {name: getattr(self, name) for name in self.all_changes().keys() - _NO_MODEL}

    def repeat(
        self,
        phase: str,
        round_number: int,
        message: Message,
        answer: Message,
        standing: Mapping[str, Any],
        remarks: Iterable[Note | Tally],
    ) -> None:
        """Take what another object has answered that stood where this one stands, and where it came to thereby.

        Raises PolicyError where this one has answered another message of the round.
        """

        def take() -> Message:
            for name, value in standing.items():
                setattr(self, name, value)
            for remark in remarks:
                self.note(remark)
            return answer

        with self._lock:
            self._replies.reply(phase, round_number, message, take, self)

    def _reply(
        self,
        phase: str,
        round_number: int,
        message: Message,
        purpose: str | None,
        decide: Callable[[], Message],
    ) -> Message:
        """Answer a phase of a round once, and give up the secret: no other total of this purpose will be opened.

        None is the purpose of a phase that opens nothing.
        """
        with self.keys.replying(phase, round_number) as keep:

            def make() -> Message:
                answer = decide()
                digest = digest_of_parts(answer)
                signed = self._signed(phase, answer, digest)
                keep(digest)
                return signed

            reply = self._replies.reply(phase, round_number, message, make, self)
        if purpose is not None:
            self.keys.wipe(round_number, purpose)
        return reply

    def _signed(self, phase: str, answer: Message, digest: bytes) -> Message:
        return Message(
            {**answer, **self.keys.sign_answer(phase, digest)} if phase in self.context.signed else answer
        )

    @contextmanager
    def _recording(self, round_number: int, keys: TotalOpener[Any], total: SchemeTotal) -> Iterator[None]:
        """Record that the total was opened in here, also where what comes of it is refused.

        And once more where it is opened again, since what was recorded then may have been lost: rounds are counted.
        Raises PolicyError for a total with clients that were not invited: they would take the room of those who were.
        """
        if total.named_clients and not isinstance(self.keys, GrantedKeys):  # else who granted them has looked
            self._invitations.check_list(round_number, total.named_clients)
        try:
            yield
        finally:
            if total.count and keys.has_opened(total):
                self.record(OpenedSum(round_number))

    def _check_runs(self, round_number: int) -> None:
        """Raise PolicyError for a round that is not the one that was begun last, for what opens nothing by its keys."""
        if round_number != self.keys.newest_round:
            raise PolicyError(f"round {round_number} does not run: have the key authority begin it")

    @abc.abstractmethod
    def _answer(self, phase: str, message: Message) -> Message:
        """Answer a phase that is the authority's: where it opens something, by ``_reply``."""

    @abc.abstractmethod
    def _first_model(self) -> Message:
        """Return what the first round starts from, while none was answered."""

    @abc.abstractmethod
    def _keeps(self, model: Message) -> bool:
        """Say whether a newest model, as it is sent, is the one that the next answer moves."""

    def _purposes(self, round_number: int, model: Message) -> tuple[str, ...]:
        """Return what a round that starts from this model encrypts."""
        return ("update",)

    def _signatures(self, model: Message, invited: bytes) -> dict[str, bytes]:
        """Sign the model and who is invited, once its round has begun: here one model for all clients."""
        return self.keys.sign_model(digest_of_parts(model), invited)
