"""The local steps of three roles, with no networking in them.

A round goes through the method's phases. In each phase every client makes a message, the aggregator receives
the messages one by one and closes the phase with one message, and where the phase says so, the key authority
turns that into the answer to the clients. A driver moves the messages; it may run the roles in one process or on
many machines.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Sequence

from shieldfl.errors import ParameterError, PolicyError
from shieldfl.methods.protocol.disclosure import Disclosure
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.opening_rule import OpeningRule
from shieldfl.methods.protocol.reports import Reporter
from shieldfl.roles.granted_keys import GrantedKeys
from shieldfl.roles.message import Message
from shieldfl.training.local_update import LocalUpdate, StartingPoint

__all__ = ["AggregatorSteps", "AuthoritySteps", "ClientSteps"]


class ClientSteps(Reporter, abc.ABC):
    """One client: its own data's update, its own model, the public keys.

    What clients of all methods do alike is in :class:`~shieldfl.methods.protocol.training_client.TrainingClient`.
    """

    awaits_secret = False
    """Whether it only enrols, since what it shares with other clients derives from what it is granted."""

    disclosure: Disclosure
    """What has left the client in its round, and how: each message adds to it, and the begin of another round starts
    from nothing. A round that is begun again goes on with what it had."""

    def enrolment(self) -> Message:
        """Return what the key authority has to get from this client before its first round; here nothing.

        It has to come to it on a channel that tells who sent it.
        """
        return Message()

    def enrolled(self, answer: Message) -> None:
        """Take the key authority's answer to the enrolment: what lets this client open sums, where clients do."""

    def granted_secret(self) -> bytes:
        """Return a secret that all clients and the key authority have, once this one is enrolled: 32 bytes.

        Raises PolicyError where clients are granted nothing, or this one was not yet.
        """
        raise PolicyError("this client is granted nothing that others have: the key authority opens sums")

    def catch_up(self, missed: Sequence[Message]) -> None:
        """Open the ends of rounds that the client was not in, where clients open sums: in order, each once.

        They are parts of what :meth:`AggregatorSteps.missed` returned, which a round's first message brings by itself.
        """
        if missed:
            raise PolicyError("this client opens nothing: it needs no ends of rounds that it was not in")

    @property
    def has_trained(self) -> bool:
        """Whether an update of the round that was begun last was taken: it need not be trained again."""
        return False

    def open_by(self, rule: OpeningRule, keys: GrantedKeys) -> None:
        """Let the client open sums itself. Raises ParameterError for one that cannot."""
        raise ParameterError("this client opens nothing: the key authority gets the totals")

    @abc.abstractmethod
    def begin_round(self, round_number: int, participants: int, model: Message) -> StartingPoint:
        """Take the round's first message: the global model and, in methods that encrypt, the round's public keys.

        It is what :meth:`AuthoritySteps.begin_round` returned; without a key authority the model alone. Raises
        PolicyError for a missing key, KeyMismatchError for one that the authority did not sign for this round.
        """

    @abc.abstractmethod
    def finish_training(self, update: LocalUpdate) -> None:
        """Take the result of local training, whose vectors may be written over afterwards: copy what is kept.

        Raises PolicyError for one that was trained in another round, or comes after a message has told of another,
        ParameterError and RangeError as :meth:`LocalUpdate.check` and :meth:`LocalUpdate.checked_scores` do.
        """

    @abc.abstractmethod
    def step(self, phase: str, answer: Message | None) -> Message:
        """Make this phase's message from the answer to the phase before (None in the first).

        Asked again, it gives the same bytes again, never fresh noise on the same values. Raises PolicyError and
        KeyMismatchError for an answer that the key authority should have signed and did not.
        """

    @abc.abstractmethod
    def end_round(self, answer: Message) -> None:
        """Take the answer to the last phase: the new global model."""

    def forget_round(self) -> None:
        """Let go of what only the round's messages need, where they have arrived and the next round will be another.

        What is asked again of this round is refused, and nothing of the next one changes. Here nothing is kept.
        """

    def global_model(self, model: Message) -> Message:
        """Return the newest global model as this client knows it: here what a message brings."""
        return model

    @abc.abstractmethod
    def merged_model(self, model: Message) -> StartingPoint:
        """Return the client's own model, given the global one: what it would use for inference."""


class AggregatorSteps(Reporter, abc.ABC):
    """The aggregator: sums what it cannot read.

    What most do alike is in :class:`~shieldfl.methods.protocol.collecting_aggregator.CollectingAggregator`.
    """

    def newest_model(self) -> Message:
        """Return what the next round starts from, where it holds the model.

        It does without a key authority, and where it opens sums itself. Raises ParameterError elsewhere.
        """
        raise ParameterError("this aggregator does not see the model: ask the key authority for it")

    def open_by(self, rule: OpeningRule, keys: GrantedKeys) -> None:
        """Let the aggregator open sums. Raises ParameterError for one that cannot."""
        raise ParameterError(
            "this aggregator opens nothing: the key authority or clients get what opens totals"
        )

    def replace_model(self, model: GlobalModel) -> None:
        """Begin the next round with another model than the last sum came to: what a server's optimiser made of it.

        Raises ParameterError where this role does not see the model, or a round needs more of a model than its numbers,
        and for a model of other sizes or with NaN.
        """
        raise ParameterError("this aggregator does not see the model: it cannot step with it")

    def enrolment(self) -> Message:
        """Return what asks the key authority to let the aggregator open sums, where it does; nothing elsewhere.

        It has to come to it on a channel that tells who sent it.
        """
        return Message()

    def enrolled(self, answer: Message) -> None:
        """Take the key authority's answer to that: what opens its answers."""

    def model_digest(self) -> bytes:
        """Return the digest of the newest model, 32 bytes, for the key authority to sign; b"" where that has it."""
        return b""

    def open(self, phase: str, answer: Message) -> Message:
        """Open a closed phase's total by what the key authority answered to :meth:`request`, where the aggregator does.

        Returns what an authority that opens would have answered, which is to be signed where such an answer is. Raises
        ParameterError elsewhere, KeyMismatchError for another answer, and as :meth:`AuthoritySteps.answer` does.
        """
        raise ParameterError("this aggregator opens nothing: pass the answer on")

    def opened_before(self, phase: str) -> Message | None:
        """Return what a phase has opened to in an earlier round that is answered once in the whole run.

        None for other phases, before it was answered, and where the aggregator opens nothing.
        """
        return None

    def begin_round(self, round_number: int, keys: Message) -> None:
        """Take the round's public keys: of its first message those parts alone, never the model; here there are none.

        They are what :func:`shieldfl.roles.round_key_check.round_key_parts` returns. Raises as
        :meth:`ClientSteps.begin_round` does.
        """

    @abc.abstractmethod
    def begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Forget the phase before and start to collect.

        ``answer`` is what the clients got for the phase before, None in the first: from it the aggregator
        knows what their messages must look like, whichever of them comes first.
        """

    @abc.abstractmethod
    def receive(self, phase: str, client: int, message: Message) -> None:
        """Add one client's message. A refused message raises and changes nothing."""

    @abc.abstractmethod
    def close(self, phase: str) -> Message:
        """Return the phase's result: the answer to the clients, or what goes to the key authority.

        Asked again, it returns the same.
        """

    def request(self, phase: str) -> Message:
        """Return what asks the key authority for what opens a closed phase's total, where clients or this role open.

        The answer is bound to all of the phase's result, so that all clients open the same.
        """
        raise ParameterError(
            "neither clients nor aggregator open anything in this method: the key authority gets the total"
        )

    def keep(self, answer: Message, request: Message, finished: Sequence[int]) -> None:
        """Keep what every client gets at a round's end, where clients open, for those that are not ``finished``.

        ``request`` is what :meth:`request` returned, to which the authority has answered.
        """
        raise ParameterError(
            "clients open nothing in this method: each round's first message brings the model"
        )

    def missed(self, client: int, *, again: bool = False) -> Message:
        """Return, to be sent with a round's first message, what a client has to open first; nothing if it has all.

        ``again``: for a client that refuses the round for what it lacks: what it was sent before may have been lost.
        """
        return Message()


class AuthoritySteps(Reporter, abc.ABC):
    """The key authority: makes each round's keys, opens totals and keeps the global model."""

    needs_sealing = True

    def enrol(self, client: int, enrolment: Message) -> Message:
        """Take what :meth:`ClientSteps.enrolment` returned, and return what is for :meth:`ClientSteps.enrolled`.

        Whoever calls this vouches that it is this client's. Clients come in any order, before the aggregator's
        :meth:`grant` or after it: enrolment ends once all are there, and, where the aggregator opens, that was granted.

        Raises KeyMismatchError, PolicyError for a client that was enrolled before, WireFormatError; ParameterError
        where none enrols.
        """
        raise ParameterError("clients of this method share nothing with the key authority: none enrols")

    def revoke(self, client: int) -> None:
        """Answer no list any more that has a client in it; a second time changes nothing.

        Raises ParameterError where none enrols.
        """
        raise ParameterError(
            "clients of this method share nothing with the key authority: none can be revoked"
        )

    def close(self) -> None:
        """Give up the file of the authority's memory, where it has one."""

    @abc.abstractmethod
    def newest_model(self) -> Message:
        """Return what the next round starts from: the model, and what travels with it."""

    def grant(self, request: Message) -> Message:
        """Take what :meth:`AggregatorSteps.enrolment` returned; return what is for :meth:`AggregatorSteps.enrolled`.

        Whoever calls this vouches that it is the aggregator's. It may come before clients :meth:`enrol`, among them or
        after them; the same request gets the same again. Raises ParameterError where the aggregator opens
        nothing, KeyMismatchError, PolicyError for a second aggregator, WireFormatError.
        """
        raise ParameterError("the aggregator of this federation opens nothing: it is granted no answers")

    @abc.abstractmethod
    def begin_round(
        self, round_number: int, invited: Iterable[int] | None = None, model: bytes = b""
    ) -> Message:
        """Begin a round, and return its first message, for the clients.

        That is the newest model with the round's public keys and who is invited, signed; the aggregator gets the keys
        alone. Where the aggregator opens sums it has the model, adds it, and gives its digest, ``model``. ``invited``
        are the clients that are asked; None for all of the plan. Secrets of the round before are wiped. A round that is
        begun again has the same first message, but, where clients open, for what was answered since. Raises
        PolicyError for a round before the newest, one that was answered, one that the plan does not have, one with
        fewer invited clients than ``min_clients`` or others than before, and for another model than may come now.
        """

    @abc.abstractmethod
    def answer(self, phase: str, message: Message) -> Message:
        """Turn the aggregator's result into the answer to the clients.

        The same message gets the same answer, so that a lost one can be asked for again. Raises PolicyError, and
        ParameterError for a phase that the key authority does not answer.
        """

    def sign_answer(self, phase: str, round_number: int, digest: bytes) -> Message:
        """Sign, for an aggregator that opens, what a phase came to: return the part that goes with it.

        Of several authorities, where clients open: what all of them have answered. ``digest`` is what
        :func:`shieldfl.roles.round_key_check.digest_of_parts` returns of what :meth:`AggregatorSteps.open` did, or of
        the answer. Raises PolicyError for a second one, ParameterError where nothing is signed.
        """
        raise ParameterError("the aggregator of this federation opens nothing: it has no answers to sign")
