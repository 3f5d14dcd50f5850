"""Opening by the key authority's answers, where it does not open itself: at each client, or at the aggregator alone."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from shieldfl.array_view import address_of
from shieldfl.authority.granted_keys import GrantedKeys, GrantRequest
from shieldfl.authority.message import Message, Part
from shieldfl.authority.round_key_check import ANSWER_SIGNATURE, digest_of_parts
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import PolicyError, RangeError, ShieldError
from shieldfl.privacy.events import ReadSum
from shieldfl.rounds.global_model import GlobalModel
from shieldfl.rounds.messages import (
    ANSWER,
    ANSWERED_PHASE,
    ANSWERED_ROUND,
    HISTORY,
    HISTORY_BYTES,
    TOTAL,
    beside_total,
    missed_parts,
    next_history,
)
from shieldfl.rounds.opening_rule import OpeningRule, RoundOpener
from shieldfl.rounds.reports import Note, Reporter, Tally
from shieldfl.stateful import refuse_unless

_SIGNED = {ANSWER, ANSWERED_ROUND, ANSWERED_PHASE, ANSWER_SIGNATURE}
_OF_ANSWERS = {*_SIGNED, HISTORY}


class _Opening:
    """What opens totals by answers: the rule is that of an authority that opens.

    The role opens, and tells of it.
    """

    changes: ClassVar[Mapping[str, Any]] = {"keys": GrantedKeys, "opener": RoundOpener}

    def __init__(self, rule: OpeningRule, keys: GrantedKeys, role: Reporter) -> None:
        self.keys = keys
        self.opener = RoundOpener(rule)
        self.role = role
        self._context = rule.context

    def check_changed(self) -> None:
        refuse_unless(-1 <= self.keys.newest_round <= self._context.plan.rounds)

    def note(self, note: Note | Tally) -> None:
        self.role.note(note)

    def check_list(self, round_number: int, clients: Iterable[int]) -> None:
        """The authority has looked who was invited."""

    def tell_opened(self, round_number: int) -> None:
        """Do nothing: the authority tells it, for all clients."""


class AggregatorOpening(_Opening):
    """Opens totals by answers that are sealed for the aggregator alone, and begins rounds with the models they make."""

    changes: ClassVar = {"_grant": GrantRequest}

    def __init__(self, rule: OpeningRule, keys: GrantedKeys, role: Reporter) -> None:
        super().__init__(rule, keys, role)
        self._grant = GrantRequest(keys.check)

    def tell_opened(self, round_number: int) -> None:
        self.role.record(ReadSum(round_number))

    def enrolment(self) -> Message:
        return Message({"enrolment": self._grant.request})

    def granted(self, answer: Message) -> None:
        self.keys.grant(self._grant.granted(answer["grant"]))

    def model_digest(self) -> bytes:
        return digest_of_parts(self.opener.newest_model())

    def open(self, phase: str, purpose: str, result: Message, answer: Message) -> Message:
        """Open a phase's total, and return what an authority would have answered, unsigned.

        What is open again, too. Raises PolicyError for the answer to another phase, and as the opener does;
        then nothing has changed.
        """
        number = answer.number(ANSWERED_ROUND)
        if answer[ANSWERED_PHASE] != phase.encode():
            raise PolicyError(f"this is no answer to phase {phase!r}: nothing was opened")
        with self.role.clock.stage(self._context.stage_of(phase)):
            if number <= self.opener.newest_answer(phase):
                return self.opener.answer(phase, result, self)
            begun = self.keys.newest_round
            try:
                self.opener.enter_round(number, self.keys)
                self.keys.take(purpose, answer[ANSWER], beside_total(result))
                return self.opener.answer(phase, result, self)
            except BaseException:
                self.keys.go_back(begun)
                raise


class ClientOpening(_Opening):
    """Opens rounds' totals one after the other, and refuses to go on from another history than the authority signed."""

    changes: ClassVar = {
        "_history": bytes,
        "_told": Message | None,
        "_told_in": int,
        "_spoiled": dict[str, int],
    }

    def __init__(self, rule: OpeningRule, keys: GrantedKeys, role: Reporter) -> None:
        super().__init__(rule, keys, role)
        self.together = OpenedTogether(1)
        """What it shares with other clients of its process."""
        self._history = bytes(HISTORY_BYTES)
        self._told: Message | None = None
        self._told_in = 0
        self._spoiled: dict[str, int] = {}
        """By phase, the newest round whose answered total opened to nothing that can be used: the model stayed."""

    def check_changed(self) -> None:
        refuse_unless(len(self._history) == HISTORY_BYTES and self._told_in >= 0)
        refuse_unless(self._spoiled.keys() <= set(self._context.answered))
        refuse_unless(all(0 <= number <= self.keys.newest_round for number in self._spoiled.values()))

    def newest_spoiled(self, phase: str) -> int:
        return self._spoiled.get(phase, -1)

    def begin_round(self, round_number: int, first: Message, missed: Sequence[Message]) -> Message:
        """Open the ends of rounds that were missed, and return the round's model.

        Raises PolicyError where what came along is not all that the authority has answered, and as
        :meth:`open` does.
        """
        self.catch_up(missed)
        if bytes(first[HISTORY]) != self._history:
            raise PolicyError(
                f"round {round_number} begins from other sums than this client has opened: get the ends of all rounds "
                "that it was not in, with the round's first message"
            )
        model, _ = self.opener.enter_round(round_number, self.keys)
        return model

    def divided(self, message: Message) -> tuple[Message, list[Message]]:
        return missed_parts(message, self.together.read)

    def catch_up(self, missed: Sequence[Message]) -> None:
        """Open the ends of rounds that were missed; older ones than the newest change nothing.

        Raises as :meth:`open`.
        """
        for end in missed:
            if self._is_past(end):
                continue
            told = self.role.pending()
            self.open(end)
            self.role.take_back(told)  # was told by those that were in the round

    def _is_past(self, end: Message) -> bool:
        if ANSWER not in end:
            return False
        name = bytes(end[ANSWERED_PHASE]).decode(errors="replace")
        if name not in self._context.answered:
            return False
        number = end.number(ANSWERED_ROUND)
        return number < self.opener.newest_answer(name) or number <= self.newest_spoiled(name)

    def open(self, message: Message, phase: str | None = None) -> Message | None:
        """Open a phase's total and return what an authority would have answered; what is open already changes nothing.

        None for a total that the authority has answered and that opens to nothing which can be used: a client has
        altered its own part of it. It is the same for all clients; so all go on, with the model that they had.
        ``phase`` is needed where it opens no total. Raises KeyMismatchError for what the authority did not answer,
        WireFormatError, PolicyError for what follows other sums or is said to be of another round; then nothing has
        changed.
        """
        if ANSWER not in message:
            if phase is None or self._context.answered.get(phase, "") is not None:
                raise PolicyError("the key authority's answer is missing: nothing was opened")
            return self.opener.answer(phase, message, self)
        number, name = message.number(ANSWERED_ROUND), bytes(message[ANSWERED_PHASE]).decode(errors="replace")
        purpose = self._context.answered.get(name)
        if purpose is None or phase not in (None, name):
            raise PolicyError(f"there is no total of phase {name!r} to open now")
        result = Message({part: message[part] for part in message.keys() - _OF_ANSWERS})
        check = self.keys.check
        if len(check.identity.members) > 1:
            # By each of several authorities: what one of them tells one client alone, another one does not sign.
            check.check_answer(
                Message({part: message[part] for part in message.keys() & _SIGNED}), number, name
            )
        if number <= self.newest_spoiled(name):
            return None
        if number <= self.opener.newest_answer(name):
            return self.opener.answer(name, result, self)  # what it was, or refused
        if message[HISTORY] != self._history:
            raise PolicyError(
                f"the end of round {number} follows sums that this client has not opened: get those before it first"
            )
        begun = self.keys.newest_round

        def bound() -> bytes:
            return beside_total(Message({**result, HISTORY: self._history}))

        try:
            self.opener.enter_round(number, self.keys)
            opened = self.together.begin(self._history, message, name, number, result, self)
            if opened.answer is None:
                self.keys.take(purpose, message[ANSWER], bound())
                opened.answer = self.opener.answer(name, result, self)
                opened.request = self.keys.newest_request
                self.together.end(self._history, opened, self)
        except BaseException as error:
            self.keys.go_back(begun)
            if not isinstance(error, ShieldError):
                raise
            request = self._answered_request(number, purpose, result, message[ANSWER], bound())
            if request is None:
                raise
            self.keys.go_back(number)
            self._history = next_history(self._history, request)
            self._spoiled = {**self._spoiled, name: number}
            text = f"round {number}: the sum of phase {name!r} cannot be used, and the model stays: {error}"
            self.note(Note(text))
            return None
        self._history = next_history(self._history, opened.request)
        return opened.answer

    def _answered_request(
        self, number: int, purpose: str, result: Message, answer: Part, bound: bytes
    ) -> bytes | None:
        """Return what a total was asked for with, where the authority has answered for this very total; else None.

        What the aggregator says of round and purpose is not bound: under another number one client alone
        would skip a sum.
        """
        parameters = self.keys.check.parameters[purpose]
        try:
            total = scheme_of(parameters).Total.from_bytes(result[TOTAL])
            if total.round != number or not total.is_for(purpose):
                return None
            return self.keys.answered_request(purpose, total, answer, bound)
        except ShieldError:
            return None

    def tell(self, round_number: int, phase: str, message: Message | None) -> Message:
        """Open the total of a phase that another one follows, and return what the aggregator has to know of it.

        Without a message it is what was opened in an earlier round, of a phase that is answered once in the
        whole run.
        """
        if message is None and phase not in self._context.answered_once:
            raise PolicyError(f"the end of phase {phase!r} is missing: nothing is told of an earlier round's")
        told = self.opener.last_answer(phase) if message is None else self.open(message, phase)
        if told is None:
            raise RangeError(f"of phase {phase!r} there is no sum that can be used: there is nothing to tell")
        self._told, self._told_in = told, round_number
        return told

    def goes_on(self, round_number: int, answer: Message) -> Message:
        """Return what a round opened before a phase. Raises PolicyError where another thing is gone on with."""
        if self._told is None or (self._told_in, self._told) != (round_number, answer):
            raise PolicyError(
                "most clients say that the sum has opened to something else: one of them lies, or this client was sent "
                "another total. It leaves the round"
            )
        return self._told


@dataclass
class _Opened:
    message: Message
    """All that this client was sent, or another one that was sent the same."""
    keys: GrantedKeys
    before: Mapping[str, Any]
    """Where its opener stood."""
    told: int
    """How many remarks its client had to tell before."""
    result: Message
    """What the opener was asked."""
    seconds: float
    """When it was begun, and then how long it took."""
    after: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[Note | Tally, ...] = ()
    answer: Message | None = None
    """None until it is opened."""
    request: bytes = b""
    clients: int = 0
    """That have it."""


class OpenedTogether:
    """The totals that some clients of a federation have opened, and others have not come to yet.

    Dropped when all have. A client gets a result only if it was sent the same bytes after the same sums, its
    opener stands where the first one's stood, and it was granted the same by the authority: then its own work
    would come to the same.
    """

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._known: dict[bytes, _Opened] = {}
        """By the history of the sums before."""
        self._read: WeakValueDictionary[int, Message] = WeakValueDictionary()
        """What ends of rounds were read to, by the object that each is, as long as somebody has it."""
        self._saved = 0.0

    def read(self, end: Part) -> Message:
        """Return a message that was read from these bytes; from one and the same object it is read once.

        Raises WireFormatError.
        """
        known = self._read.get(id(end))
        # A message that was read has views of the object that it was read from, which nothing else can be meanwhile.
        if known is not None and any(
            isinstance(one, memoryview) and one.obj is end for one in known.values()
        ):
            return known
        message = Message.from_bytes(end)
        if isinstance(end, bytes):
            self._read[id(end)] = message
        return message

    def take_saved(self) -> float:
        """Return the seconds that clients would have taken since the last call, by themselves, beside those it took."""
        saved, self._saved = self._saved, 0.0
        return saved

    def begin(
        self,
        history: bytes,
        message: Message,
        phase: str,
        round_number: int,
        result: Message,
        opening: ClientOpening,
    ) -> _Opened:
        """Return what a client's total of a round's phase opens to, where another one has opened it.

        This one has, too. Elsewhere it has no answer yet: the client opens it, and hands it to :meth:`end`.
        """
        start = time.perf_counter()
        keys, opener = opening.keys, opening.opener
        before, known = opener.standing(), self._known.get(history)
        if (
            known is None
            or known.answer is None
            or not (keys.opens_as(known.keys) and _are_same(known.before, before))
            or not (known.message is message or _are_same(known.message, message))
        ):
            _, told = opening.role.pending()
            return _Opened(message, keys, before, told, result, start)
        # What clients missed is sent from one place: the next one's is found to be the same without being read.
        known.message = message
        opener.repeat(phase, round_number, known.result, known.answer, known.after)
        for remark in known.remarks:
            opening.note(remark)
        self._count(history, known)
        self._saved += max(0.0, known.seconds - (time.perf_counter() - start))
        return known

    def end(self, history: bytes, opened: _Opened, opening: ClientOpening) -> None:
        opened.after = opening.opener.standing()
        opened.remarks = opening.role.remarks_after(opened.told)
        opened.seconds = time.perf_counter() - opened.seconds
        self._count(history, self._known.setdefault(history, opened))

    def _count(self, history: bytes, known: _Opened) -> None:
        known.clients += 1
        if known.clients == self._clients:
            del self._known[history]


def _are_same(ones: Mapping[Any, Any], others: Mapping[Any, Any]) -> bool:
    return ones.keys() == others.keys() and all(_is_same(one, others[name]) for name, one in ones.items())


def _address(part: Part) -> int:
    return address_of(np.frombuffer(part, np.uint8))


def _is_same(one: Any, other: Any) -> bool:
    """Say whether two values are the same, as far as can be said: False for what is of a kind that is not looked at."""
    if one is other:
        return True
    if isinstance(one, bytes | memoryview) and isinstance(other, bytes | memoryview):
        return len(one) == len(other) and (_address(one) == _address(other) or bytes(one) == bytes(other))
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, GlobalModel):
        one, other = one.to_message(), other.to_message()
    return _are_same(one, other) if isinstance(one, Mapping) else bool(one == other)
