"""A key authority that answers who took part, and opens nothing: each client works the model out itself."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import ClassVar

from shieldfl.array_view import as_unsigned
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.methods.protocol.invited import Invitations
from shieldfl.methods.protocol.replies import Replies
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.methods.protocol.steps import AuthoritySteps
from shieldfl.privacy.events import OpenedSum
from shieldfl.roles.message import Message
from shieldfl.roles.round_key_check import INVITED, digest_of_parts
from shieldfl.roles.round_signer import RoundSigner
from shieldfl.scheme.registry import scheme_of
from shieldfl.stateful import refuse_unless

__all__ = [
    "ANSWER",
    "ANSWERED_PHASE",
    "ANSWERED_ROUND",
    "HISTORY",
    "HISTORY_BYTES",
    "ListAuthority",
    "is_digest",
    "newest_answer",
    "next_history",
]

HISTORY = "earlier answers"
"""The part that holds the digest of all answers so far: of a round's first message, of requests and of rounds' ends."""
HISTORY_BYTES = _DIGEST_BYTES = 32

ANSWER, ANSWERED_ROUND, ANSWERED_PHASE = "answer", "answered round", "answered phase"
"""Parts of an answer, which clients get beside the phase's result."""


def newest_answer(phase: str) -> str:
    """Return the name of the part of a round's first message that says which round was last answered in a phase."""
    return f"newest answer {phase}"


def is_digest(value: object) -> bool:
    """Whether a value is a SHA-256: 32 bytes."""
    return isinstance(value, bytes | bytearray) and len(value) == _DIGEST_BYTES


def next_history(history: bytes, request: bytes) -> bytes:
    """Return the digest of all answered requests, in their order, once one more is answered."""
    return hashlib.sha256(b"shieldfl history 1\0" + history + hashlib.sha256(request).digest()).digest()


class ListAuthority(AuthoritySteps):
    """The same for every method: it sees lists of participants and digests, no total and no model.

    Its rounds' first message is what it signs: the number of the round, the digest of all that it has answered so far,
    by which clients know that they have, and agree on, every opened sum, and the last round that it answered in each
    phase.

    Parameters
    ----------
    context : what all roles of the federation know.
    keys : what it shares with the clients.
    """

    changes: ClassVar = {
        "keys": RoundSigner,
        "_replies": Replies,
        "_signed_answers": Replies,
        "_history": bytes,
        "_invitations": Invitations,
    }

    def __init__(self, context: RoleContext, keys: RoundSigner) -> None:
        super().__init__()
        self.context = context
        self.keys = keys
        self._replies = Replies()
        self._signed_answers = Replies()
        self._history = bytes(HISTORY_BYTES)
        self._invitations = Invitations(context.plan)

    def check_changed(self) -> None:
        """Raise WireFormatError for other rounds or phases than the plan's."""
        super().check_changed()
        self._check_untold(self.context.plan.rounds, range(self.context.plan.clients))
        rounds, phases = self.context.plan.rounds, self.context.answered
        refuse_unless(-1 <= self.keys.newest_round <= rounds and len(self._history) == HISTORY_BYTES)
        refuse_unless(all(self._replies.newest(phase)[0] <= rounds for phase in phases))
        refuse_unless(self._replies.phases <= set(phases))
        refuse_unless(self._signed_answers.phases <= set(phases))

    def enrol(self, client: int, enrolment: Message) -> Message:
        """Share with a client, from now on, what its request says; return what lets it open answers."""
        number = as_unsigned(client, "client")
        if number >= self.context.plan.clients:
            raise ParameterError(f"the plan has clients 0 to {self.context.plan.clients - 1}")
        with self._lock:
            return Message({"grant": self.keys.enrol(number, enrolment["enrolment"])})

    def revoke(self, client: int) -> None:
        """Answer no list any more that has a client in it."""
        with self._lock:
            self.keys.revoke(client)

    def close(self) -> None:
        """Give up the file of the authority's memory, where it has one."""
        self.keys.close()

    def newest_model(self) -> Message:
        """Return what stands for the model: the digest of all answers that it comes of, and the rounds of the last."""
        with self._lock:
            return self._newest()

    def _newest(self) -> Message:
        last = {phase: max(self._replies.newest(phase)[0], 0) for phase in self.context.answered}
        rounds = {newest_answer(phase): Message.from_number(number) for phase, number in last.items()}
        return Message({HISTORY: self._history, **rounds})

    def begin_round(
        self, round_number: int, invited: Iterable[int] | None = None, model: bytes = b""
    ) -> Message:
        """Sign the round: its number, who is invited, and what was answered before."""
        number = as_unsigned(round_number, "round_number")
        with self._lock:
            if not 1 <= number <= self.context.plan.rounds:
                raise PolicyError(
                    f"round {number} is none of the plan's {self.context.plan.rounds:,}: it is not begun"
                )
            if number <= self._replies.newest(self.context.phases[-1])[0]:
                raise PolicyError(f"round {number} has been answered: begin a later round")
            asked = self._invitations.settled(number, invited)
            self.keys.begin_round(number, tuple(self.context.keys.parameters))
            frame = asked.to_bytes()
            first, digest = self._signed_first(number, model)
            signatures = self.keys.sign_model(digest, frame)
            # What was answered before moves on in the round itself; that is kept reply by reply.
            self.keys.keep_first_message(number, digest_of_parts(Message({INVITED: frame, "model": model})))
            self._invitations.settle(number, asked)
            return Message({**first, INVITED: frame, **signatures})

    def _signed_first(self, number: int, model: bytes) -> tuple[Message, bytes]:
        """Return what clients get of the authority beside who is invited, and the digest of what is signed."""
        first = Message({"round": Message.from_number(number), **self._newest()})
        return first, digest_of_parts(first)

    def answer(self, phase: str, message: Message) -> Message:
        """Answer a list with what opens its total, sealed for clients; a repeated one gets its answer again."""
        self.context.check_answered(phase)
        with self._lock, self.clock.stage("open"):
            number = message.number("round")
            before = self._replies.newest(phase)[0]
            if phase in self.context.answered_once and 0 <= before < number:
                raise PolicyError(
                    f"a total of phase {phase!r} was answered in round {before}, and another one would tell of single "
                    "clients: what was opened then is good for the whole run"
                )
            with self.keys.replying(phase, number) as keep:

                def make() -> Message:
                    reply = self._answered(phase, number, message)
                    keep(digest_of_parts(reply))
                    self.record(OpenedSum(number))
                    return reply

                return self._replies.reply(phase, number, message, make, self)

    def sign_answer(self, phase: str, round_number: int, digest: bytes) -> Message:
        """Sign, of several authorities, what all together have answered to a phase: one thing for all clients.

        Each has answered for itself; a dishonest one could tell one client something else, which would then go on from
        another model or mask, and be alone with it in the next sum. Raises PolicyError for a second thing, and what is
        not answered; ParameterError.
        """
        if len(self.context.keys.identity.members) == 1:
            return super().sign_answer(phase, round_number, digest)
        self.context.check_answered(phase)
        number = as_unsigned(round_number, "round_number")
        with self._lock:
            if not number == self.keys.newest_round == self._replies.newest(phase)[0]:
                raise PolicyError(
                    f"phase {phase!r} of round {number} does not run, or its list was not answered: nothing is signed"
                )
            return self._signed_once(phase, number, digest)

    def _signed_once(self, phase: str, number: int, digest: bytes) -> Message:
        if not is_digest(digest):
            raise ParameterError(f"of phase {phase!r} no answer of this length is signed")
        with self.keys.replying(f"signature of {phase}", number) as keep:

            def make() -> Message:
                signature = self.keys.sign_answer(phase, digest)
                keep(digest)
                return Message(signature)

            asked = Message({"digest": bytes(digest)})
            return self._signed_answers.reply(phase, number, asked, make, self)

    def _answered(self, phase: str, number: int, message: Message) -> Message:
        request = bytes(message["request"])
        purpose = self.context.answered[phase]
        if purpose is None:
            raise ParameterError(
                f"phase {phase!r} opens nothing: its answer follows from sums that were opened before"
            )
        self._check_follows(number, message)
        self._invitations.check_list(number, self._listed(purpose, request))
        answer = self.keys.sum_key(number, purpose, request)
        self._history = next_history(self._history, request)
        return Message(
            {ANSWER: answer, ANSWERED_ROUND: Message.from_number(number), ANSWERED_PHASE: phase.encode()}
        )

    def _check_follows(self, number: int, message: Message) -> None:
        """Raise PolicyError for a request from another history than what was answered."""
        if message[HISTORY] != self._history:
            raise PolicyError(
                f"the request follows other answers than this authority has given: begin round {number} again from its "
                "first message"
            )

    def _listed(self, purpose: str, request: bytes) -> list[int]:
        asked = scheme_of(self.context.keys.parameters[purpose]).PublicKey.read_request(request)
        return [client for client, _ in asked.participants]
