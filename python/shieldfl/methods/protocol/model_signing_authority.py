"""A key authority of rounds whose sums the aggregator opens: it sees no sum, no model, and signs one model for all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from shieldfl.array_view import as_unsigned
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.methods.protocol.list_authority import ListAuthority, is_digest
from shieldfl.methods.protocol.role_context import RoleContext
from shieldfl.roles.message import Message
from shieldfl.roles.round_signer import RoundSigner
from shieldfl.stateful import refuse_unless

__all__ = ["ModelSigningAuthority"]


class ModelSigningAuthority(ListAuthority):
    """Answers lists for the aggregator alone, and signs digests of what it sends: one model between two answers.

    It cannot tell a model that follows from a sum from one that the aggregator has made up, but there is one alone:
    between the answers to two rounds' last phases every round begins with the same model, for all clients, and before
    the first of them with the model that the set-up pins. The same goes for answers in between, which say what is
    encrypted. An authority that was restored from a state before a round begins it with that model again. It may begin
    the next one instead, also with another model; then nothing of the one before is answered.

    Parameters
    ----------
    context, keys : as for :class:`ListAuthority`.
    first_model : the digest of what the first round begins with, 32 bytes.
    """

    changes: ClassVar = {
        "_model": bytes,
        "_model_after": int,
        "_for_the_run": dict[str, bytes],
    }

    def __init__(self, context: RoleContext, keys: RoundSigner, first_model: bytes) -> None:
        super().__init__(context, keys)
        self._model = self._first_model = first_model
        self._model_after = -1
        """The round that was answered last when the model was first signed."""
        self._for_the_run: dict[str, bytes] = {}
        """The digest of what was signed, of each phase that is answered once in the whole run."""

    def check_changed(self) -> None:
        """Raise WireFormatError for a digest that is none, and signatures of what was not answered."""
        super().check_changed()
        refuse_unless(is_digest(self._model))
        refuse_unless(-1 <= self._model_after <= self._replies.newest(self.context.phases[-1])[0])
        refuse_unless(self._model_after >= 0 or self._model == self._first_model)
        refuse_unless(self._signed_answers.phases <= set(self.context.signed))
        once = set(self.context.answered_once)
        for phase in self.context.signed:
            last = self.keys.newest_round if phase in once else self._replies.newest(phase)[0]
            refuse_unless(self._signed_answers.newest(phase)[0] <= last)
        refuse_unless(self._for_the_run.keys() <= once & set(self.context.signed))
        refuse_unless(all(map(is_digest, self._for_the_run.values())))

    def enrol(self, client: int, enrolment: Message) -> Message:
        """Share with a client, from now on, what its request says; it gets nothing, since nothing is for it to open."""
        super().enrol(client, enrolment)
        return Message()

    def grant(self, request: Message) -> Message:
        """Let the aggregator open answers: one alone, whose request gets the same grant again."""
        with self._lock:
            return Message({"grant": self.keys.grant_opener(request["enrolment"])})

    def begin_round(
        self, round_number: int, invited: Iterable[int] | None = None, model: bytes = b""
    ) -> Message:
        """Sign the round: its number, who is invited, and the model whose digest the aggregator brings."""
        with self._lock:
            after = self._replies.newest(self.context.phases[-1])[0]
            if not is_digest(model):
                raise ParameterError("the aggregator begins rounds with a model: give its digest, 32 bytes")
            if after == self._model_after and model != self._model:
                raise PolicyError(
                    "no round was answered since another model was signed, or none at all: begin with that model, or "
                    "with the initial one"
                )
            first = super().begin_round(round_number, invited, model)
            self._model, self._model_after = bytes(model), after
            return first

    def _signed_first(self, number: int, model: bytes) -> tuple[Message, bytes]:
        return Message(), model

    def sign_answer(self, phase: str, round_number: int, digest: bytes) -> Message:
        """Sign what the aggregator says that a phase's total came to: once, since clients go on by it.

        Of a phase that is answered once in the whole run it is the same in every round.
        """
        self.context.check_answered(phase)
        number = as_unsigned(round_number, "round_number")
        if phase not in self.context.signed or not is_digest(digest):
            raise ParameterError(f"of phase {phase!r} no answer of this length is signed")
        with self._lock:
            answered, once = self._replies.newest(phase)[0], phase in self.context.answered_once
            if number != self.keys.newest_round or not (
                answered == number or (once and 0 <= answered < number)
            ):
                raise PolicyError(
                    f"phase {phase!r} of round {number} does not run, or its list was not answered: nothing is signed"
                )
            if once and self._for_the_run.get(phase, digest) != digest:
                raise PolicyError(f"another answer of phase {phase!r} was signed, for the whole run")
            signature = self._signed_once(phase, number, digest)
            if once:
                self._for_the_run = {**self._for_the_run, phase: bytes(digest)}
            return signature

    def _check_follows(self, number: int, message: Message) -> None:
        """One opener alone has all answers: it need not agree with others on what they were."""
