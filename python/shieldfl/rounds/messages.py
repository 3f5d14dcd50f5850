"""What roles ask each other where sums are opened by answers to lists, and what was answered before."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from shieldfl.authority.message import Message, Part
from shieldfl.authority.round_key_check import digest_of_parts
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import PolicyError
from shieldfl.stateful import refuse_unless

OPENED = "opened"
"""The phase in which clients tell the aggregator what it has to know of a sum that they have opened."""

HISTORY = "earlier answers"
"""The part that holds the digest of all answers so far: of a round's first message, of requests and of rounds' ends."""
HISTORY_BYTES = _DIGEST_BYTES = 32

ANSWER, ANSWERED_ROUND, ANSWERED_PHASE = "answer", "answered round", "answered phase"
"""Parts of an answer, which clients get beside the phase's result."""

TOTAL = "total"
MISSED = "missed round "
"""What the names of parts begin with that are the ends of rounds that a client was not in."""


def newest_answer(phase: str) -> str:
    return f"newest answer {phase}"


def is_digest(value: object) -> bool:
    return isinstance(value, bytes | bytearray) and len(value) == _DIGEST_BYTES


def next_history(history: bytes, request: bytes) -> bytes:
    return hashlib.sha256(b"shieldfl history 1\0" + history + hashlib.sha256(request).digest()).digest()


def beside_total(result: Message) -> bytes:
    return digest_of_parts(result, but=[TOTAL])


def sum_request(parameters: SchemeParameters[Any], result: Message, history: bytes | None) -> Message:
    """Return what asks for what opens a total, bound to all of the phase's result and to the history."""
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

    A second reply to other words would be fresh noise on the same values, or another sum of the same round.
    The last request of each phase is kept whole: to hash megabytes takes about as long as to open what is in
    them. Whoever asks holds the role's lock from :meth:`given` to :meth:`keep`.
    """

    changes: ClassVar = {"_given": dict[str, tuple[int, Message | None, Message]], "_over": int}

    def __init__(self) -> None:
        # By phase: the round, the request, the reply.
        self._given: dict[str, tuple[int, Message | None, Message]] = {}
        # The newest round whose replies were forgotten.
        self._over = -1

    def check(self, newest: Mapping[str, int]) -> None:
        """Raise WireFormatError for replies of other phases, or of later rounds than each one's."""
        refuse_unless(self._given.keys() <= newest.keys())
        refuse_unless(all(number <= newest[phase] for phase, (number, _, _) in self._given.items()))

    def newest(self, phase: str) -> tuple[int, Message | None]:
        """Return the last round that was answered in a phase, and its reply; -1 and None before the first."""
        number, _, reply = self._given.get(phase, (-1, None, None))
        return number, reply

    def forget(self) -> None:
        """Forget what was replied so far: it is refused to whoever asks again, as another reply would be."""
        self._over = max((number for number, _, _ in self._given.values()), default=self._over)
        self._given = {phase: (number, None, Message()) for phase, (number, _, _) in self._given.items()}

    def given(self, phase: str, round_number: int, request: Message | None) -> Message | None:
        """Return the reply that this request got; None where it is to be made, and given to :meth:`keep`.

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
        """Put back what the owner's attributes were where an error comes before this round's reply is kept."""
        before = vars(owner).copy()
        try:
            yield
        except BaseException:
            # An interrupt may come after the reply was kept, too.
            if self._given.get(phase, (-1,))[0] != round_number:
                vars(owner).update(before)
            raise
