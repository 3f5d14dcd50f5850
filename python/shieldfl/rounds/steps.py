"""The key authority's local steps, and how a round reaches its clients; there is no networking in either.

A round goes through the method's phases. In each phase every client makes a message (``training_client.py``), the
aggregator receives the messages one by one and closes the phase with one message (``collecting_aggregator.py``), and
where the phase says so, the key authority turns that into the answer to the clients. A driver moves the messages; it
may run the roles in one process or on many machines.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from shieldfl.authority.message import Message
from shieldfl.errors import ParameterError, RangeError
from shieldfl.rounds.reports import Reporter


class AuthoritySteps(Reporter, abc.ABC):
    """The key authority: makes each round's keys, opens totals and keeps the global model."""

    needs_sealing = True

    def enrol(self, client: int, enrolment: Message) -> Message:
        """Take what :meth:`TrainingClient.enrolment` returned, and return what is for :meth:`TrainingClient.enrolled`.

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
        """Take what :meth:`CollectingAggregator.enrolment` returned; return what its ``enrolled`` takes.

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
        :func:`shieldfl.authority.round_key_check.digest_of_parts` returns of what :meth:`CollectingAggregator.open`
        did, or of the answer. Raises PolicyError for a second one, ParameterError where nothing is signed.
        """
        raise ParameterError("the aggregator of this federation opens nothing: it has no answers to sign")


class Clients(Protocol):
    """How a round reaches its clients: in this process, in processes of their own or over a network.

    The driver holds no client. ``message_of`` returns what a client is sent; it is called once for each client, when
    that client is reached.
    """

    def begin_round(
        self,
        clients: Sequence[int],
        round_number: int,
        participants: int,
        message_of: Callable[[int], Message],
    ) -> None:
        """Give each client the round's first message; it trains, and nobody waits for it."""

    def step(
        self, clients: Sequence[int], phase: str, message_of: Callable[[int], Message] | None
    ) -> Iterable[tuple[int, bytes | RangeError]]:
        """Let each client make the phase's message from the last answer (None in the first); yield its bytes.

        In any order, as they arrive, each with the index of its client. A client whose training or update is refused
        yields the RangeError instead, and one that is gone yields nothing.
        """

    def end_round(self, clients: Sequence[int], message_of: Callable[[int], Message]) -> None:
        """Give each client the answer to the last phase: the new global model."""
