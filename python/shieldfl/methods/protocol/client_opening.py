"""A client's part in opening: it works each round's model out, from what aggregator and authority say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

from shieldfl.errors import PolicyError, RangeError, ShieldError
from shieldfl.methods.protocol.list_authority import (
    ANSWER,
    ANSWERED_PHASE,
    ANSWERED_ROUND,
    HISTORY,
    HISTORY_BYTES,
    next_history,
)
from shieldfl.methods.protocol.missed_rounds import missed_parts
from shieldfl.methods.protocol.opened_together import OpenedTogether
from shieldfl.methods.protocol.reports import Note
from shieldfl.methods.protocol.round_authority import RoundAuthority
from shieldfl.roles.granted_keys import GrantedKeys
from shieldfl.roles.message import Message, Part
from shieldfl.roles.round_key_check import ANSWER_SIGNATURE, digest_of_parts
from shieldfl.scheme.parameters import SchemeParameters
from shieldfl.scheme.registry import scheme_of
from shieldfl.stateful import Stateful, refuse_unless

__all__ = ["OPENED", "ClientOpening", "beside_total", "most_told", "sum_request"]

OPENED = "opened"
"""The phase in which clients tell the aggregator what it has to know of a sum that they have opened."""

_TOTAL = "total"
_SIGNED = {ANSWER, ANSWERED_ROUND, ANSWERED_PHASE, ANSWER_SIGNATURE}
_OF_ANSWERS = {*_SIGNED, HISTORY}


def beside_total(result: Message) -> bytes:
    """Return the digest of what an aggregator sends beside a total, to which the answer is bound; 32 bytes."""
    return digest_of_parts(result, but=[_TOTAL])


def sum_request(parameters: SchemeParameters[Any, Any], result: Message, history: bytes | None) -> Message:
    """Return what asks the key authority for what opens a phase's total.

    The answer is bound to all of the phase's result and, where several open, to the history of what was answered
    before, without which nobody opens it.
    """
    total = scheme_of(parameters).Total.from_bytes(result[_TOTAL])
    follows = {} if history is None else {HISTORY: history}
    bound = beside_total(Message({**result, **follows}))
    return Message({"round": Message.from_number(total.round), "request": total.request(bound), **follows})


def most_told(told: Mapping[int, Message]) -> Message:
    """Return what most clients say that a sum opened to; of several, what the first of them says."""
    said = Counter(message.to_bytes() for message in told.values())
    (most, _), *_ = said.most_common(1)
    return Message.from_bytes(most)


class ClientOpening(Stateful):
    """Opens rounds' totals one after the other, and refuses to go on from another history than the authority signed.

    Parameters
    ----------
    opener : what turns totals into models; the same as an authority's where that opens.
    answered : the phases whose answer it gives, and for what purpose each opens a total, None for none.
    once : of these, those that are answered once in the whole run.
    """

    changes: ClassVar = {
        "opener": RoundAuthority,
        "_history": bytes,
        "_told": Message | None,
        "_told_in": int,
        "_spoiled": dict[str, int],
    }

    def __init__(
        self, opener: RoundAuthority, answered: Mapping[str, str | None], once: Collection[str] = ()
    ) -> None:
        self.opener = opener
        self.together: OpenedTogether | None = None
        """What it shares with other clients of its process; None where each opens for itself."""
        self._answered = answered
        self._once = once
        self._history = bytes(HISTORY_BYTES)
        self._told: Message | None = None
        self._told_in = 0
        self._spoiled: dict[str, int] = {}
        """By phase, the newest round whose answered total opened to nothing that can be used: the model stayed."""

    def check_changed(self) -> None:
        """Raise WireFormatError for a history that is none."""
        super().check_changed()
        refuse_unless(len(self._history) == HISTORY_BYTES and self._told_in >= 0)
        refuse_unless(self._spoiled.keys() <= set(self._answered))
        refuse_unless(all(0 <= number <= self.keys.newest_round for number in self._spoiled.values()))

    @property
    def keys(self) -> GrantedKeys:
        """What opens the authority's answers."""
        keys = self.opener.keys
        assert isinstance(keys, GrantedKeys)
        return keys

    def newest_spoiled(self, phase: str) -> int:
        """Return the newest round whose total of a phase was answered and could not be used; -1 before the first."""
        return self._spoiled.get(phase, -1)

    def model(self) -> Message:
        """Return the newest model that was opened; before that, the initial one."""
        return self.opener.newest_model()

    def begin_round(self, round_number: int, first: Message, missed: Sequence[Message]) -> Message:
        """Open the ends of rounds that were missed, and return the round's model.

        ``first`` is what the authority signed, and was looked at. Raises PolicyError where what came along is not all
        that it has answered, and as :meth:`open` does.
        """
        self.catch_up(missed)
        if bytes(first[HISTORY]) != self._history:
            raise PolicyError(
                f"round {round_number} begins from other sums than this client has opened: get the ends of all rounds "
                "that it was not in, with the round's first message"
            )
        return self.opener.enter_round(round_number)

    def divided(self, message: Message) -> tuple[Message, list[Message]]:
        """Divide a round's first message as :func:`missed_parts`. Raises WireFormatError."""
        return missed_parts(message, Message.from_bytes if self.together is None else self.together.read)

    def catch_up(self, missed: Sequence[Message]) -> None:
        """Open the ends of rounds that were missed; older ones than the newest, sent again, change nothing.

        Raises as :meth:`open` does.
        """
        for end in missed:
            if self._is_past(end):
                continue
            self.open(end)
            self.opener.report()  # was told by those that were in the round

    def _is_past(self, end: Message) -> bool:
        if ANSWER not in end:
            return False
        name = bytes(end[ANSWERED_PHASE]).decode(errors="replace")
        if name not in self._answered:
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
            if phase is None or self._answered.get(phase, "") is not None:
                raise PolicyError("the key authority's answer is missing: nothing was opened")
            return self.opener.answer(phase, message)
        number, name = message.number(ANSWERED_ROUND), bytes(message[ANSWERED_PHASE]).decode(errors="replace")
        purpose = self._answered.get(name)
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
            return self.opener.answer(name, result)  # what it was, or refused
        if message[HISTORY] != self._history:
            raise PolicyError(
                f"the end of round {number} follows sums that this client has not opened: get those before it first"
            )
        begun = self.keys.newest_round

        def bound() -> bytes:
            return beside_total(Message({**result, HISTORY: self._history}))

        try:
            self.opener.enter_round(number)

            def work() -> tuple[Message, bytes]:
                self.keys.take(purpose, message[ANSWER], bound())
                return self.opener.answer(name, result), self.keys.newest_request

            if self.together is None:
                answer, asked = work()
            else:
                answer, asked = self.together.open(
                    self._history, message, name, number, result, self.opener, work
                )
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
            self.opener.note(Note(text))
            return None
        self._history = next_history(self._history, asked)
        return answer

    def _answered_request(
        self, number: int, purpose: str, result: Message, answer: Part, bound: bytes
    ) -> bytes | None:
        """Return what a total was asked for with, where the authority has answered for this very total; else None.

        Its round and purpose are in the total, which the answer is bound to. What the aggregator says of them is not:
        under another number a sum that all others open would be of no use to one client.
        """
        parameters = self.keys.check.parameters[purpose]
        try:
            total = scheme_of(parameters).Total.from_bytes(result[_TOTAL])
            if total.round != number or not total.is_for(purpose):
                return None
            return self.keys.answered_request(purpose, total, answer, bound)
        except ShieldError:
            return None

    def tell(self, round_number: int, phase: str, message: Message | None) -> Message:
        """Open the total of a phase that another one follows, and return what the aggregator has to know of it.

        Without a message it is what was opened in an earlier round, of a phase that is answered once in the whole run;
        PolicyError where nothing was.
        """
        if message is None and phase not in self._once:
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
