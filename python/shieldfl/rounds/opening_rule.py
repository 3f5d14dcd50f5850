"""A checked total makes the next model: what methods do with opened sums, and who opens them.

If the key authority does not open sums itself, each client opens them by its answers to lists of
participants, or the aggregator alone does. What was answered once is never answered in another way.
"""

from __future__ import annotations

import abc
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import address_of
from shieldfl.authority.message import Message, Part
from shieldfl.authority.round_key_check import ANSWER_SIGNATURE, digest_of_parts
from shieldfl.authority.total_opener import GrantedKeys, GrantRequest, TotalOpener
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.encryption.registry import SchemeTotal, scheme_of
from shieldfl.errors import ParameterError, PolicyError, RangeError, ShieldError
from shieldfl.rounds.plan import GlobalModel, RoleContext
from shieldfl.rounds.reports import Note, Reporter
from shieldfl.stateful import changes_of, refuse_unless

if TYPE_CHECKING:
    from shieldfl.authority.round_keys import RoundSigner

HISTORY = "earlier answers"
"""Name of the part with the digest of all answers so far, in first messages, requests and rounds' ends."""
HISTORY_BYTES = _DIGEST_BYTES = 32

ANSWER, ANSWERED_ROUND, ANSWERED_PHASE = "answer", "answered round", "answered phase"
"""Names of the parts of an authority's answer, which clients get beside the phase's result."""

TOTAL = "total"
MISSED = "missed round "
"""Prefix of the names of parts that hold the ends of rounds that a client was not in."""


def newest_answer(phase: str) -> str:
    return f"newest answer {phase}"


def is_digest(value: object) -> bool:
    return isinstance(value, bytes | bytearray) and len(value) == _DIGEST_BYTES


def next_history(history: bytes, request: bytes) -> bytes:
    return hashlib.sha256(b"shieldfl history 1\0" + history + hashlib.sha256(request).digest()).digest()


def beside_total(result: Message) -> bytes:
    return digest_of_parts(result, but=[TOTAL])


def sum_request(parameters: SchemeParameters[Any], result: Message, history: bytes | None) -> Message:
    """Return the request for what opens a total, bound to all of the phase's result and to the history."""
    total = scheme_of(parameters).Total.from_bytes(result[TOTAL])
    follows = {} if history is None else {HISTORY: history}
    bound = beside_total(Message({**result, **follows}))
    return Message({"round": Message.from_number(total.round), "request": total.request(bound), **follows})


def missed_parts(message: Message, read: Callable[[Part], Message]) -> tuple[Message, list[Message]]:
    """Divide a round's first message into what was signed and the ends of rounds that were missed."""
    missed = sorted(name for name in message if name.startswith(MISSED))
    first = Message({name: part for name, part in message.items() if name not in missed})
    return first, [read(message[name]) for name in missed]


class Replies:
    """One reply for each phase of a round: a lost one can be asked for again, a second one is never made.

    A second reply, to another request, would be fresh noise on the same values, or another sum of the same
    round. The last request of each phase is kept whole: to hash its megabytes would take about as long as to
    open their content. The caller holds the role's lock from :meth:`given` to :meth:`keep`.
    """

    changes: ClassVar = {"_given": dict[str, tuple[int, Message | None, Message]], "_over": int}

    def __init__(self) -> None:
        # By phase: the round, the request, the reply.
        self._given: dict[str, tuple[int, Message | None, Message]] = {}
        # The newest round whose replies were forgotten.
        self._over = -1

    def check(self, newest: Mapping[str, int]) -> None:
        """Raise WireFormatError for replies of phases that ``newest`` lacks, or of later rounds."""
        refuse_unless(self._given.keys() <= newest.keys())
        refuse_unless(all(number <= newest[phase] for phase, (number, _, _) in self._given.items()))

    def newest(self, phase: str) -> tuple[int, Message | None]:
        """Return the last round that was answered in a phase, and its reply; -1 and None before the first."""
        number, _, reply = self._given.get(phase, (-1, None, None))
        return number, reply

    def forget(self) -> None:
        """Forget the replies so far: asked for again, they are refused, as another reply would be."""
        self._over = max((number for number, _, _ in self._given.values()), default=self._over)
        self._given = {phase: (number, None, Message()) for phase, (number, _, _) in self._given.items()}

    def given(self, phase: str, round_number: int, request: Message | None) -> Message | None:
        """Return the reply that this request got; None if it has to be made and given to :meth:`keep`.

        Raises PolicyError.
        """
        last_round, last_request, last_reply = self._given.get(phase, (-1, None, Message()))
        if round_number <= self._over:
            raise PolicyError(f"round {round_number} is over: nothing of it is sent again")
        if (last_round, last_request) == (round_number, request):
            return last_reply
        if round_number <= last_round:
            raise PolicyError(
                f"round {last_round} has been answered in phase {phase!r}: another answer is not given"
            )
        return None

    def keep(self, phase: str, round_number: int, request: Message | None, reply: Message) -> Message:
        self._given[phase] = (round_number, request, reply)
        return reply

    @contextmanager
    def undone_unless_kept(self, phase: str, round_number: int, owner: object) -> Iterator[None]:
        """Restore the owner's attributes if an error comes before this reply is kept."""
        before = vars(owner).copy()
        try:
            yield
        except BaseException:
            # An interrupt may come after the reply was kept, too.
            if self._given.get(phase, (-1,))[0] != round_number:
                vars(owner).update(before)
            raise


class RoundSums:
    """The sums of one purpose in one round, opened as a rule asks for them; each opening is recorded."""

    def __init__(
        self, role: Reporter, keys: RoundSigner | GrantedKeys, number: int, purpose: str | None
    ) -> None:
        self._role = role
        self._keys = keys
        self._number = number
        self._purpose = purpose

    @property
    def min_clients(self) -> int:
        return self._opener().min_clients

    def open(self, total: SchemeTotal) -> NDArray[np.float64]:
        with self.opening(total) as opener:
            return opener.open(total)

    def check_runs(self) -> None:
        if self._number != self._keys.newest_round:
            raise PolicyError(f"round {self._number} does not run: have the key authority begin it")

    def note(self, text: str, subject: str | None = None) -> None:
        """Record a remark; a later one on the same subject replaces it."""
        self._role.note(Note(text) if subject is None else Note(text, subject, self._number))

    def _opener(self) -> TotalOpener[Any]:
        assert self._purpose is not None
        return self._keys.opener(self._number, self._purpose)

    @contextmanager
    def opening(self, total: SchemeTotal) -> Iterator[TotalOpener[Any]]:
        """Yield the opener of a total of invited clients; record afterwards whether it opened the total."""
        opener = self._opener()
        if total.named_clients:
            self._role.check_list(self._number, total.named_clients)
        try:
            yield opener
        finally:
            # Also if the rule refuses the result, and once more if the total is opened again: rounds are
            # counted.
            event = self._role.opened_event
            if event and self._purpose == "update" and total.count and opener.has_opened(total):
                self._role.record(event(self._number))


class OpeningRule(metaclass=abc.ABCMeta):
    """How a method's opened sums move its model. It holds what they move, and no key."""

    changes: ClassVar[Mapping[str, Any]] = {}
    """Types of the attributes that answers change, by name; see :mod:`shieldfl.stateful`."""

    def __init__(self, context: RoleContext) -> None:
        self.context = context

    @abc.abstractmethod
    def first_model(self) -> Message:
        """Return what the first round starts from, while none was answered."""

    @abc.abstractmethod
    def keeps(self, model: Message) -> bool:
        """Say whether a newest model, as it is sent, is the one that the next answer moves."""

    @abc.abstractmethod
    def answer(self, phase: str, message: Message, sums: RoundSums) -> Message:
        """Return the answer to a phase, from what its totals open to. If it raises, nothing has changed."""

    def round_of(self, phase: str, message: Message) -> int:
        return message.number("round")

    def purposes(self, round_number: int, model: Message) -> tuple[str, ...]:
        return ("update",)

    def digests(self, model: Message) -> Mapping[int | None, bytes]:
        """Return what is signed of a round's model: one digest by client, or one for all under None."""
        return {None: digest_of_parts(model)}

    def next_model(self, newest: Message | None) -> Message:
        """Return what the next round starts from, given the last answer; None before the first."""
        return self.first_model() if newest is None else newest

    def replace_model(self, model: GlobalModel, newest: Message) -> None:
        """Continue from another model than ``newest``."""
        raise ParameterError(
            "rounds of this method start from more than a model's numbers, so that no server's optimiser can "
            "step in between: take FedAvg, or a method such as full-he"
        )


class RoundOpener:
    """Answers the phases of rounds by a rule, each once: the last with the new model.

    It takes no model from anybody, so all clients of a round train from one model, or find out.
    """

    changes: ClassVar = {"rule": OpeningRule, "replies": Replies}

    def __init__(self, rule: OpeningRule) -> None:
        self.rule = rule
        self._context = rule.context
        self.replies = Replies()

    def check_changed(self) -> None:
        answered = self._context.answered
        self.replies.check(dict.fromkeys(answered, self._context.plan.rounds))
        refuse_unless(self.rule.keeps(self.newest_model()))

    def newest_model(self) -> Message:
        return self.rule.next_model(self.replies.newest(self._context.phases[-1])[1])

    def model_of(self, round_number: int) -> Message:
        """Return what a round starts from. Raises PolicyError for one that may not begin."""
        self._context.check_round(round_number, self.replies.newest(self._context.phases[-1])[0])
        return self.newest_model()

    def answer(
        self,
        phase: str,
        message: Message,
        role: Reporter,
        keys: RoundSigner | GrantedKeys,
        finish: Callable[[Message], Message] = lambda answer: answer,
    ) -> Message:
        """Turn the aggregator's result into the answer to the clients; a repeated message gets it again.

        If it raises, nothing has changed, except what was opened.
        """
        # Under another name an answer would not count as the round's: another could follow, and so could
        # another model.
        self._context.check_answered(phase)
        number, purpose = self.rule.round_of(phase, message), self._context.answered[phase]
        sums = RoundSums(role, keys, number, purpose)
        if purpose is None:
            # What opens nothing is asked for in its own round alone, also where it is asked again.
            sums.check_runs()
        reply = self.replies.given(phase, number, message)
        if reply is None:
            with self.replies.undone_unless_kept(phase, number, self.rule):
                reply = finish(self.rule.answer(phase, message, sums))
                self.replies.keep(phase, number, message, reply)
        if purpose is not None:
            # No other total of this purpose will be opened.
            keys.wipe(number, purpose)
        return reply

    def standing(self) -> dict[str, Any]:
        """Return what decides answers beside keys: the rule's attributes, whose values no step alters."""
        return {name: getattr(self.rule, name) for name in changes_of(type(self.rule))}

    def repeat(
        self, phase: str, round_number: int, message: Message, answer: Message, standing: Mapping[str, Any]
    ) -> None:
        """Take over the answer of another object that was in the same state, and its state afterwards."""
        if self.replies.given(phase, round_number, message) is None:
            with self.replies.undone_unless_kept(phase, round_number, self.rule):
                for name, value in standing.items():
                    setattr(self.rule, name, value)
                self.replies.keep(phase, round_number, message, answer)


_SIGNED = {ANSWER, ANSWERED_ROUND, ANSWERED_PHASE, ANSWER_SIGNATURE}
_OF_ANSWERS = {*_SIGNED, HISTORY}


class AggregatorOpening:
    """Opens totals by answers that are sealed for the aggregator alone, which then begins rounds."""

    changes: ClassVar = {"keys": GrantedKeys, "opener": RoundOpener, "grant": GrantRequest}

    def __init__(self, rule: OpeningRule, keys: GrantedKeys, role: Reporter) -> None:
        self.keys = keys
        self.opener = RoundOpener(rule)
        self.role = role
        self.grant = GrantRequest(keys.check)
        self._context = rule.context

    def check_changed(self) -> None:
        refuse_unless(-1 <= self.keys.newest_round <= self._context.plan.rounds)

    def open(self, phase: str, purpose: str, result: Message, answer: Message) -> Message:
        """Open a phase's total, also again, and return what an authority that opens would have answered."""
        number = answer.number(ANSWERED_ROUND)
        if answer[ANSWERED_PHASE] != phase.encode():
            raise PolicyError(f"this is no answer to phase {phase!r}: nothing was opened")
        keys = self.keys
        with self.role.clock.stage(self._context.stage_of(phase)):
            if number <= self.opener.replies.newest(phase)[0]:
                return self.opener.answer(phase, result, self.role, keys)
            begun = keys.newest_round
            try:
                self.opener.model_of(number)
                keys.begin_round(number)
                keys.take(purpose, answer[ANSWER], beside_total(result))
                return self.opener.answer(phase, result, self.role, keys)
            except BaseException:
                keys.go_back(begun)
                raise


class ClientOpening:
    """Opens rounds' totals in order, and refuses a history other than the one that the authority signed."""

    changes: ClassVar = {
        "keys": GrantedKeys,
        "opener": RoundOpener,
        "_history": bytes,
        "_told": Message | None,
        "_told_in": int,
        "_spoiled": dict[str, int],
    }

    def __init__(self, rule: OpeningRule, keys: GrantedKeys, role: Reporter) -> None:
        self.keys = keys
        self.opener = RoundOpener(rule)
        self.role = role
        self._context = rule.context
        self.together = OpenedTogether(1)
        self._history = bytes(HISTORY_BYTES)
        self._told: Message | None = None
        self._told_in = 0
        self._spoiled: dict[str, int] = {}
        """Newest round whose answered total opened to nothing usable, by phase; the model then stayed."""

    def check_changed(self) -> None:
        refuse_unless(-1 <= self.keys.newest_round <= self._context.plan.rounds)
        refuse_unless(len(self._history) == HISTORY_BYTES and self._told_in >= 0)
        refuse_unless(self._spoiled.keys() <= set(self._context.answered))
        refuse_unless(all(0 <= number <= self.keys.newest_round for number in self._spoiled.values()))

    def newest_spoiled(self, phase: str) -> int:
        return self._spoiled.get(phase, -1)

    def begin_round(self, round_number: int, first: Message, missed: Sequence[Message]) -> Message:
        """Open the ends of rounds that were missed, and return the round's model."""
        self.catch_up(missed)
        if bytes(first[HISTORY]) != self._history:
            raise PolicyError(
                f"round {round_number} begins from other sums than this client has opened: get the ends of "
                "all rounds that it was not in, with the round's first message"
            )
        model = self.opener.model_of(round_number)
        self.keys.begin_round(round_number)
        return model

    def catch_up(self, missed: Sequence[Message]) -> None:
        """Open the ends of missed rounds; ends that are older than the newest opened one change nothing."""
        for end in missed:
            if self._is_past(end):
                continue
            told = self.role.pending()
            self.open(end)
            self.role.take_back(told)  # clients in the round have reported it

    def _is_past(self, end: Message) -> bool:
        if ANSWER not in end:
            return False
        name = bytes(end[ANSWERED_PHASE]).decode(errors="replace")
        if name not in self._context.answered:
            return False
        number = end.number(ANSWERED_ROUND)
        return number < self.opener.replies.newest(name)[0] or number <= self.newest_spoiled(name)

    def open(self, message: Message, phase: str | None = None) -> Message | None:
        """Open a phase's total and return what an authority that opens would have answered, also again.

        Returns None for a total that the authority has answered and that opens to nothing usable: a client
        has altered its own part of it. That is the same for all clients, so all continue with the model that
        they had. ``phase`` is needed if it opens no total. Raises KeyMismatchError, WireFormatError,
        PolicyError; then nothing has changed.
        """
        if ANSWER not in message:
            if phase is None or self._context.answered.get(phase, "") is not None:
                raise PolicyError("the key authority's answer is missing: nothing was opened")
            return self.opener.answer(phase, message, self.role, self.keys)
        number, name = message.number(ANSWERED_ROUND), bytes(message[ANSWERED_PHASE]).decode(errors="replace")
        purpose = self._context.answered.get(name)
        if purpose is None or phase not in (None, name):
            raise PolicyError(f"there is no total of phase {name!r} to open now")
        result = Message({part: message[part] for part in message.keys() - _OF_ANSWERS})
        check = self.keys.check
        if len(check.identity.members) > 1:
            # Signed by each of several authorities: if one of them tells a single client something else,
            # the others do not sign it.
            check.check_answer(
                Message({part: message[part] for part in message.keys() & _SIGNED}), number, name
            )
        if number <= self.newest_spoiled(name):
            return None
        if number <= self.opener.replies.newest(name)[0]:
            return self.opener.answer(name, result, self.role, self.keys)  # what it was, or refused
        if message[HISTORY] != self._history:
            raise PolicyError(
                f"the end of round {number} follows sums that this client has not opened: get those before "
                "it first"
            )
        begun = self.keys.newest_round

        def bound() -> bytes:
            return beside_total(Message({**result, HISTORY: self._history}))

        try:
            self.opener.model_of(number)
            self.keys.begin_round(number)
            start, before = time.perf_counter(), self.opener.standing()
            opened = self.together.found(self._history, message, name, number, self)
            if opened is None:
                _, told = self.role.pending()
                self.keys.take(purpose, message[ANSWER], bound())
                answer = self.opener.answer(name, result, self.role, self.keys)
                after, remarks = self.opener.standing(), self.role.remarks_after(told)
                follows = next_history(self._history, self.keys.newest_request)
                seconds = time.perf_counter() - start
                opened = _Opened(message, self.keys, before, result, answer, follows, after, remarks, seconds)
                self.together.keep(self._history, opened)
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
            self.role.note(Note(text))
            return None
        self._history = opened.history
        return opened.answer

    def _answered_request(
        self, number: int, purpose: str, result: Message, answer: Part, bound: bytes
    ) -> bytes | None:
        """Return the request for a total if the authority has answered for this very total, else None.

        Round and purpose are not bound: under another number one client alone would skip a sum.
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
        """Open a total that another phase follows, or take an earlier round's; return what is told of it."""
        if message is None and phase not in self._context.answered_once:
            raise PolicyError(f"the end of phase {phase!r} is missing: nothing is told of an earlier round's")
        told = self.opener.replies.newest(phase)[1] if message is None else self.open(message, phase)
        if told is None:
            raise RangeError(f"of phase {phase!r} there is no sum that can be used: there is nothing to tell")
        self._told, self._told_in = told, round_number
        return told

    def goes_on(self, round_number: int, answer: Message) -> Message:
        """Return what the round's sum opened to, before the phase that needs it.

        Raises PolicyError if the round continues with something else.
        """
        if self._told is None or (self._told_in, self._told) != (round_number, answer):
            raise PolicyError(
                "most clients say that the sum has opened to something else: one of them lies, or this "
                "client was sent another total. It leaves the round"
            )
        return self._told


@dataclass
class _Opened:
    message: Message
    """Message that the client was sent, or an equal one that another client was sent."""
    keys: GrantedKeys
    before: Mapping[str, Any]
    """State of the client's opener before it opened the total."""
    result: Message
    """The phase's result, which the opener answered."""
    answer: Message
    history: bytes
    """History of a client that has opened it."""
    after: Mapping[str, Any]
    remarks: tuple[Note, ...]
    seconds: float
    clients: int = 0
    """Number of clients that have it."""


class OpenedTogether:
    """Totals that some clients of a federation have opened, and others have yet to open.

    A client gets a result only if its own work would give the same: it was sent the same bytes after the same
    sums, its opener is in the state that the first one's was in, and the authority granted it the same.
    """

    def __init__(self, clients: int) -> None:
        self._clients = clients
        self._known: dict[bytes, _Opened] = {}
        """Opened totals, by the history of the sums before."""
        self._read: WeakValueDictionary[int, Message] = WeakValueDictionary()
        """Messages read from ends of rounds, by the end's ``id``, as long as a message is in use."""
        self._saved = 0.0

    def read(self, end: Part) -> Message:
        """Return a message that was read from these bytes; from one and the same object it is read once."""
        known = self._read.get(id(end))
        # A message that was read has views of the object that it was read from, which nothing else can be
        # meanwhile.
        if known is not None and any(
            isinstance(one, memoryview) and one.obj is end for one in known.values()
        ):
            return known
        message = Message.from_bytes(end)
        if isinstance(end, bytes):
            self._read[id(end)] = message
        return message

    def take_saved(self) -> float:
        """Return the seconds saved since the last call: what clients alone would have taken in addition."""
        saved, self._saved = self._saved, 0.0
        return saved

    def found(
        self, history: bytes, message: Message, phase: str, round_number: int, opening: ClientOpening
    ) -> _Opened | None:
        """Return what a total opens to if another client has opened the same; then this one has it, too."""
        start = time.perf_counter()
        opener, known = opening.opener, self._known.get(history)
        if (
            known is None
            or not opening.keys.opens_as(known.keys)
            or not _is_same(known.before, opener.standing())
            or not _is_same(known.message, message)
        ):
            return None
        # What clients missed is sent from one place: the next one's is found to be the same without being
        # read.
        known.message = message
        opener.repeat(phase, round_number, known.result, known.answer, known.after)
        for remark in known.remarks:
            opening.role.note(remark)
        self.keep(history, known)
        self._saved += max(0.0, known.seconds - (time.perf_counter() - start))
        return known

    def keep(self, history: bytes, opened: _Opened) -> None:
        """Keep what one more client has, until all have it."""
        kept = self._known.setdefault(history, opened)
        kept.clients += 1
        if kept.clients == self._clients:
            del self._known[history]


def _is_same(one: Any, other: Any) -> bool:
    """Say whether two values are the same, as far as is known: False for kinds that are not looked at."""
    if one is other:
        return True
    if isinstance(one, bytes | memoryview) and isinstance(other, bytes | memoryview):
        first, second = np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8)
        is_same_place = address_of(first) == address_of(second)
        return len(one) == len(other) and (is_same_place or bytes(one) == bytes(other))
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, GlobalModel):
        one, other = one.to_message(), other.to_message()
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_is_same(own, other[name]) for name, own in one.items())
    return bool(one == other)
