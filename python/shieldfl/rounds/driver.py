"""A round, from its first message to the next model: where reading starts.

:meth:`RoundDriver.run_round` moves messages between a method's roles, wherever the clients are, and reads
none:

- *plan*: ``Method.authority_setup`` makes the key authority and a public set-up, by which all other roles are
    made;
- *train*: ``begin_round`` asks the authority for the round's first message, which it signs, and clients
    train;
- *encrypt*: in each phase clients make a message (``TrainingClient.step``), the last of which has the update;
- *add*: the aggregator takes one of each client and closes the phase (``CollectingAggregator.receive`` and
    ``close``);
- *open*: the authority opens the total, or answers so that clients or aggregator do (``opening_rule.py``);
- *once*: each phase is answered one time, and the rule of ``opening_rule.py`` moves the model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from shieldfl.authority.message import Message
from shieldfl.authority.round_key_check import digest_of_parts, round_key_parts
from shieldfl.errors import RangeError, ShieldError
from shieldfl.privacy.events import ClearUpload
from shieldfl.rounds.collecting_aggregator import CollectingAggregator
from shieldfl.rounds.method import Method, naming_own_method
from shieldfl.rounds.opening_rule import HISTORY
from shieldfl.rounds.plan import Phase
from shieldfl.rounds.reports import Account

__all__ = ["RoundDriver", "RoundTraffic"]

MessageOf = Callable[[int], Message]
"""Returns the message that a client gets, given its number."""


class Authority(Protocol):
    """What a round needs of the key authority, here or where it is served: see ``authorities.py``."""

    def newest_model(self) -> Message:
        """Return what the next round starts from: the model, and what travels with it."""

    def begin_round(
        self, round_number: int, invited: Iterable[int] | None = None, model: bytes = b""
    ) -> Message:
        """Begin a round, and return its first message."""

    def answer(self, phase: str, message: Message) -> Message:
        """Turn the aggregator's result into the answer to the clients."""

    def sign_answer(self, phase: str, round_number: int, digest: bytes) -> Message:
        """Sign the answer of a phase."""


class Clients(Protocol):
    """How a round reaches its clients; ``message_of`` is called once for each, when that one is reached."""

    def begin_round(
        self, clients: Sequence[int], round_number: int, participants: int, message_of: MessageOf
    ) -> None:
        """Give each client the round's first message; it trains, and nobody waits for it."""

    def step(
        self, clients: Sequence[int], phase: str, message_of: MessageOf | None
    ) -> Iterable[tuple[int, bytes | RangeError]]:
        """Let each client make the phase's message from the last answer (None in the first phase).

        Yields each message's bytes as it arrives. If training or update is refused, it is the RangeError
        instead; a client that is gone yields nothing.
        """

    def end_round(self, clients: Sequence[int], message_of: MessageOf) -> None:
        """Give each client the answer to the last phase: the new global model."""


@dataclass
class RoundTraffic:
    """What one round moved and measured, summed over its participants."""

    participants: int
    finished: list[int] = field(default_factory=list)
    """Clients that went through the whole round; empty if it was given up."""
    senders: list[int] = field(default_factory=list)
    """Clients that sent something in any phase."""
    bytes_up: int = 0
    bytes_down: int = 0
    losses: list[float] = field(default_factory=list)
    """Training losses of the clients that finished training, if their trainer tells them."""
    saved_seconds: float = 0.0
    """Seconds that clients would take longer one after another, for what was shared or done in parallel."""


class RoundDriver:
    """Runs rounds of one method; clients are only reached.

    ``authority`` is None for a method without one. ``account`` takes notes of who left and why. A client
    whose message is refused with an error of type ``leaves_on`` leaves the round, and the others continue; so
    does a client whose step is refused with RangeError.
    """

    def __init__(
        self,
        method: Method,
        authority: Authority | None,
        aggregator: CollectingAggregator,
        clients: Clients,
        account: Account,
        leaves_on: type[ShieldError] = RangeError,
    ) -> None:
        self._method = method
        self._authority = authority
        self._aggregator = aggregator
        self.model = self._newest_model()
        self._clients = clients
        self._account = account
        self._leaves_on = leaves_on
        self._refusals: list[ShieldError] = []

    def run_round(
        self,
        round_number: int,
        participants: Sequence[int],
        min_clients: int = 1,
        leaving: Mapping[int, str] | None = None,
    ) -> RoundTraffic:
        """Run one round with these clients.

        With fewer than ``min_clients`` left it is given up: the model stays, which is noted. ``leaving`` has,
        by client, the phase before which it leaves. A client whose training or update is refused leaves too,
        which is noted. Raises the last refusal, a RangeError or an error of type ``leaves_on``, if too many
        refusals end the round.
        """
        gone = leaving or {}
        with naming_own_method(self._method.name, type(self._method)):
            traffic = RoundTraffic(len(participants))
            self._refusals = []
            first = self.begin_round(round_number, participants)

            def sent(client: int) -> Message:
                model = self._method.message_for(client, first)
                model = Message({**model, **self._aggregator.missed(client)})
                traffic.bytes_down += model.nbytes
                return model

            self._clients.begin_round(participants, round_number, len(participants), sent)
            left = list(participants)
            answer: Message | None = None
            for phase in self._method.round_phases(first, round_number):
                left = [index for index in left if gone.get(index) != phase.name]
                if answer is not None:
                    traffic.bytes_down += self._size_for(left, answer)
                left = self._collect(phase, round_number, left, answer, traffic)
                if len(left) < min_clients:
                    began = len(participants)
                    if self._refusals and began - len(self._refusals) < min_clients:
                        raise self._refusals[-1]
                    self._account.note(
                        f"round {round_number} was given up: {len(left)} of {began} clients were left"
                    )
                    return traffic
                answer = self._reply_to_clients(phase, round_number, left, self._aggregator.close(phase.name))
            assert answer is not None
            self.model = answer if self._authority is None else self._newest_model()
            traffic.finished = left
            if self._method.clients_open:
                # What clients open travels at the end of a round; a model would with the next one's first
                # message.
                traffic.bytes_down += self._size_for(left, answer)
            self._clients.end_round(left, self._part_of(answer))
            return traffic

    def _ask_authority(self, phase: Phase, asked: Message) -> Message:
        assert self._authority is not None
        return self._authority.answer(phase.name, Message.from_bytes(asked.to_bytes()))

    def _size_for(self, clients: Sequence[int], message: Message) -> int:
        return sum(self._method.message_for(index, message).nbytes for index in clients)

    def _part_of(self, message: Message) -> MessageOf:
        return lambda client: self._method.message_for(client, message)

    def _newest_model(self) -> Message:
        if self._authority is None or self._method.aggregator_opens:
            return self._aggregator.newest_model()
        return self._authority.newest_model()

    def begin_round(self, round_number: int, invited: Sequence[int] | None = None) -> Message:
        """Let authority and aggregator begin a round; return its first message.

        ``invited`` is None for all of the plan. The aggregator gets the keys alone: it must not see the
        model, which opened sums have moved, unless it has opened them itself.
        """
        first = self.model
        if self._authority is not None:
            digest = self._aggregator.model_digest()
            signed = self._authority.begin_round(round_number, invited, digest)
            own = self._aggregator.newest_model() if self._method.aggregator_opens else Message()
            first = Message.from_bytes(Message({**own, **signed}).to_bytes())
        self._aggregator.begin_round(round_number, Message(round_key_parts(first)))
        return first

    def _collect(
        self,
        phase: Phase,
        round_number: int,
        asked: Sequence[int],
        answer: Message | None,
        traffic: RoundTraffic,
    ) -> list[int]:
        self._aggregator.begin_phase(phase.name, round_number, answer)
        left = []
        message_of = None if answer is None else self._part_of(answer)
        for index, found in self._clients.step(asked, phase.name, message_of):
            try:
                if isinstance(found, RangeError):
                    # Its data decided that it sends nothing, and no noise covers that: all see that it is
                    # missing.
                    self._account.book.add(ClearUpload(round_number, index, "refusal"))
                    raise found
                with self._account.clock.stage("upload"):
                    received = Message.from_bytes(found)
                traffic.bytes_up += len(found)
                if index not in traffic.senders:
                    traffic.senders.append(index)
                self._aggregator.receive(phase.name, index, received)
            except self._leaves_on as error:
                self._refusals.append(error)
                self._account.note(f"client {index} left round {round_number}: {error}")
                continue
            left.append(index)
        return left

    def _reply_to_clients(
        self, phase: Phase, round_number: int, left: Sequence[int], result: Message
    ) -> Message:
        """Return what clients get for the aggregator's result of a phase: opened, if it has a total."""
        aggregator, clients_open = self._aggregator, self._method.clients_open
        if not phase.answered_by_authority or (clients_open and phase.opens is None):
            return result
        if clients_open:
            asked = aggregator.request(phase.name)
            both = Message({**result, HISTORY: asked[HISTORY], **self._ask_authority(phase, asked)})
            aggregator.keep(both, asked, left)
            return both
        if not self._method.aggregator_opens:
            return self._ask_authority(phase, result)
        opened = aggregator.opened_before(phase.name)
        if opened is None:
            answer = self._ask_authority(phase, aggregator.request(phase.name))
            opened = aggregator.open(phase.name, Message.from_bytes(answer.to_bytes()))
        if not self._method.signs_answer(phase):
            return opened
        assert self._authority is not None
        signed = self._authority.sign_answer(phase.name, round_number, digest_of_parts(opened))
        return Message({**opened, **signed})
