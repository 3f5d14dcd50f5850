"""What an aggregator lets in: one message of each client in a phase, of the current round."""

from __future__ import annotations

import abc
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from shieldfl.array_view import as_unsigned
from shieldfl.authority.message import Message, Part
from shieldfl.authority.round_key_check import RoundKeyReader, digest_of_parts
from shieldfl.authority.total_opener import GrantedKeys
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import DuplicateFrameError, ParameterError, PolicyError
from shieldfl.masks import Mask
from shieldfl.privacy.events import ReadSum
from shieldfl.rounds.opening_rule import (
    HISTORY_BYTES,
    MISSED,
    AggregatorOpening,
    OpeningRule,
    next_history,
    sum_request,
)
from shieldfl.rounds.plan import OPENED, GlobalModel, RoleContext
from shieldfl.rounds.reports import Reporter
from shieldfl.stateful import refuse_unless


class MissedRounds:
    """The ends of rounds that some client may lack: it has sent nothing since."""

    changes: ClassVar = {
        "history": bytes,
        "_dropped": int,
        "_ends": list[bytes],
        "_sent": list[int],
        "_known": list[int],
    }

    def __init__(self, clients: int) -> None:
        self.history = bytes(HISTORY_BYTES)
        self._dropped = 0
        self._ends: list[bytes] = []
        self._clients = clients
        # By client: how many ends it was sent, and how many it is known to have.
        self._sent = [0] * clients
        self._known = [0] * clients

    def check_changed(self) -> None:
        there = range(self._dropped, self._dropped + len(self._ends) + 1)
        refuse_unless(len(self.history) == HISTORY_BYTES)
        refuse_unless(self._dropped >= 0 and len(self._known) == len(self._sent) == self._clients)
        refuse_unless(all(count in there for count in (*self._sent, *self._known)))

    def add(self, end: Message, request: Part, finished: Sequence[int]) -> None:
        """Keep the end of a round that answers this request; ``finished`` clients are sent it at once."""
        self.history = next_history(self.history, bytes(request))
        self._ends.append(end.to_bytes())
        for client in finished:
            if self._sent[client] == self._newest - 1:
                self._sent[client] += 1

    def parts(self, client: int, *, again: bool = False) -> dict[str, Part]:
        """Return, as parts of a message, the ends of rounds that a client was not sent.

        With ``again``, those that it is not known to have.
        """
        since = self._known[client] if again else self._sent[client]
        self._sent[client] = self._newest
        missing = self._ends[since - self._dropped :]
        return {f"{MISSED}{number:08}": end for number, end in enumerate(missing)}

    def hear(self, client: int) -> None:
        """Note that a client has all ends of rounds: it has sent a message that follows from them."""
        self._known[client] = self._sent[client] = self._newest
        gone = min(self._known) - self._dropped
        del self._ends[:gone]
        self._dropped += gone

    @property
    def _newest(self) -> int:
        return self._dropped + len(self._ends)


class CollectingAggregator(Reporter, metaclass=abc.ABCMeta):
    """Sums what it cannot read, and refuses second messages and those of other rounds and clients."""

    changes: ClassVar = {
        "round": int,
        "_round_keys": RoundKeyReader | None,
        "_phase": str | None,
        "_answer": Message | None,
        "_seen": set[int],
        "_closed": Message | None,
        "_asked": Message | None,
        "_missed": MissedRounds | None,
        "_told": dict[int, Message],
        "_opening": AggregatorOpening | None,
    }

    opened_event = ReadSum
    sums: ClassVar[tuple[str, ...]] = ()
    """Names in ``changes`` of running sums, which are restored after their phase was begun again."""

    def __init__(self, context: RoleContext) -> None:
        super().__init__()
        self.context = context
        self.round = 0
        self._clients = context.plan.clients
        self._round_keys = RoundKeyReader(context.keys) if context.keys.parameters else None
        self._phase: str | None = None
        self._answer: Message | None = None
        self._seen: set[int] = set()
        self._closed: Message | None = None
        self._asked: Message | None = None
        # By client: what it says that a sum opened to.
        self._told: dict[int, Message] = {}
        self._missed = MissedRounds(self._clients) if context.clients_open else None
        self._opening: AggregatorOpening | None = None

    def check_changed(self) -> None:
        self._check_untold(self.context.plan.rounds, range(self._clients))
        context = self.context
        refuse_unless(self._phase in (None, *context.phases) and 0 <= self.round <= context.plan.rounds)
        refuse_unless(self._seen <= set(range(self._clients)))
        refuse_unless((self._round_keys is None) == (not context.keys.parameters))
        refuse_unless((self._missed is not None) == context.clients_open)
        refuse_unless((self._opening is not None) == context.aggregator_opens)

    def open_by(self, rule: OpeningRule, keys: GrantedKeys) -> None:
        """Let the aggregator open sums.

        Its states then hold the key that opens answers, and are only given sealed under a key.
        """
        self._opening = AggregatorOpening(rule, keys, self)
        self.needs_sealing = True

    def newest_model(self) -> Message:
        """Return what the next round starts from. Raises ParameterError where it does not hold the model."""
        with self._lock:
            if self._opening is None:
                raise ParameterError("this aggregator does not see the model: ask the key authority for it")
            return self._opening.opener.newest_model()

    def replace_model(self, model: GlobalModel) -> None:
        """Begin the next round with another model than the last sum's: what a server's optimiser made."""
        with self._lock:
            if self._opening is None:
                raise ParameterError("this aggregator does not see the model: it cannot step with it")
            opener = self._opening.opener
            opener.rule.replace_model(model, opener.newest_model())

    def enrolment(self) -> Message:
        if self._opening is None:
            return Message()
        return Message({"enrolment": self._opening.grant.request})

    def enrolled(self, answer: Message) -> None:
        with self._lock:
            if self._opening is not None:
                self._opening.keys.grant(self._opening.grant.granted(answer["grant"]))

    def model_digest(self) -> bytes:
        with self._lock:
            return b"" if self._opening is None else digest_of_parts(self._opening.opener.newest_model())

    def open(self, phase: str, answer: Message) -> Message:
        """Open a closed phase's total by an answer; return what an authority that opens would answer."""
        with self._lock:
            if self._opening is None:
                raise ParameterError("this aggregator opens nothing: pass the answer on")
            return self._opening.open(phase, *self._closed_total(phase), answer)

    def opened_before(self, phase: str) -> Message | None:
        """Return what a phase that is answered once in the run has opened to in an earlier round."""
        with self._lock:
            if self._opening is None or phase not in self.context.answered_once:
                return None
            number, answer = self._opening.opener.replies.newest(phase)
            return answer if number < self.round else None

    def begin_round(self, round_number: int, keys: Message) -> None:
        """Take the round's public keys, never the model: the phases of the round before are over."""
        with self._lock:
            if self._round_keys is None:
                return
            self._round_keys.begin_round(round_number, keys)
            if round_number > self.round:
                self._phase = None

    def _round_key(self, round_number: int, purpose: str) -> Any:
        assert self._round_keys is not None
        return self._round_keys.key(round_number, purpose)

    def _sum_under(self, purpose: str, round_number: int, positions: Mask, *, weighted: bool = False) -> Any:
        """Return the scheme's aggregator for ciphertexts that all clients encrypt at these positions."""
        key = self._round_key(round_number, purpose)
        return scheme_of(key).aggregator(
            key, self.context.threads, round_number, positions, weighted=weighted, purpose=purpose
        )

    def begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Begin a phase, also the same one again, and forget the one before. A refused phase does not begin.

        ``answer``, to the phase before, determines what clients' messages must look like.
        """
        self.context.check_phase(phase)
        number = as_unsigned(round_number, "round_number")
        with self._lock:
            self.context.check_round(number)
            if number < self.round:
                raise PolicyError(f"round {number} is over since round {self.round} began")
            self.context.check_answer(phase, number, answer)
            if phase != OPENED:
                self._begin_phase(phase, number, answer)
            self.round = number
            self._phase = phase
            self._answer = answer
            self._seen = set()
            self._told = {}
            self._closed = self._asked = None

    def receive(self, phase: str, client: int, message: Message) -> None:
        """Add one client's message. A refused message changes nothing."""
        client = self.context.plan.client(client)
        with self._lock:
            self._check_phase(phase)
            if client in self._seen:
                raise DuplicateFrameError(f"client {client} has sent its message already")
            if self._closed is not None:
                raise PolicyError(f"phase {phase!r} is closed: the message of client {client} came too late")
            if message.number("round") != self.round:
                raise PolicyError(f"client {client} sent a message for another round: it was not used")
            if phase == OPENED:
                self._told[client] = Message({name: message[name] for name in message if name != "round"})
            else:
                self._collect(phase, client, message)
            self._seen.add(client)
            if self._missed is not None:
                self._missed.hear(client)

    def close(self, phase: str) -> Message:
        """Return the phase's result, the same when asked again."""
        with self._lock:
            self._check_phase(phase)
            if not self._seen:
                raise ParameterError("no message has arrived: wait for at least one client")
            if self._closed is None:
                if phase == OPENED:
                    # What most clients say; of several, what the first of them says.
                    said = Counter(message.to_bytes() for message in self._told.values())
                    self._closed = Message.from_bytes(said.most_common(1)[0][0])
                else:
                    self._closed = self._result(phase)
            return self._closed

    def request(self, phase: str) -> Message:
        """Return the request for what opens a closed phase's total: a list and a digest of the result."""
        with self._lock:
            if self._missed is None and self._opening is None:
                raise ParameterError("the key authority gets the total: there is nothing to ask for")
            purpose, closed = self._closed_total(phase)
            if self._asked is None:
                parameters = self.context.keys.parameters[purpose]
                history = None if self._missed is None else self._missed.history
                self._asked = sum_request(parameters, closed, history)
            return self._asked

    def _closed_total(self, phase: str) -> tuple[str, Message]:
        """Return the purpose of a closed phase's total, and the phase's result."""
        purpose = self.context.answered.get(phase)
        if purpose is None:
            raise ParameterError(f"phase {phase!r} opens no total: there is nothing to ask for")
        self._check_phase(phase)
        if self._closed is None:
            raise ParameterError(f"phase {phase!r} is open: close it first")
        return purpose, self._closed

    def keep(self, answer: Message, request: Message, finished: Sequence[int]) -> None:
        """Keep a round's end, if clients open sums, for those that are not ``finished``."""
        with self._lock:
            if self._missed is None:
                raise ParameterError("clients open nothing: each round's first message brings the model")
            self._missed.add(answer, request["request"], finished)

    def missed(self, client: int, *, again: bool = False) -> Message:
        """Return the ends that a client must open before a round; ``again`` if sent ones may be lost."""
        with self._lock:
            return Message({} if self._missed is None else self._missed.parts(client, again=again))

    def take_changed(self, record: Mapping[str, Any]) -> None:
        super().take_changed({name: value for name, value in record.items() if name not in self.sums})
        if self._phase not in (None, OPENED):
            assert self._phase is not None
            self._begin_phase(self._phase, self.round, self._answer)
            super().take_changed(record)
            self.check_sums()

    def check_sums(self) -> None:
        """Raise WireFormatError unless the running sums are of the clients that sent messages."""

    def _check_phase(self, phase: str) -> None:
        if phase != self._phase:
            begun = "no phase has begun" if self._phase is None else f"phase {self._phase!r} runs"
            raise PolicyError(f"messages of phase {phase!r} are not taken: {begun}")

    @abc.abstractmethod
    def _begin_phase(self, phase: str, round_number: int, answer: Message | None) -> None:
        """Start to collect from nothing.

        If it raises, it must have changed nothing. ``round`` is the one before.
        """

    @abc.abstractmethod
    def _collect(self, phase: str, client: int, message: Message) -> None:
        """Add a message. If it raises, it must have changed nothing."""

    @abc.abstractmethod
    def _result(self, phase: str) -> Message:
        """Return the phase's result from its messages."""
