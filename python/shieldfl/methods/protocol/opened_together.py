"""What clients of one process open alike is computed once: each looks at what it was sent, and takes the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from shieldfl.array_view import address_of
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.reports import Note, Tally
from shieldfl.methods.protocol.round_authority import RoundAuthority
from shieldfl.roles.granted_keys import GrantedKeys
from shieldfl.roles.message import Message, Part

__all__ = ["OpenedTogether"]


@dataclass
class _Opened:
    """One total, as the first client opened it."""

    message: Message
    """All that this client was sent, or another one that was sent the same."""
    keys: GrantedKeys
    before: Mapping[str, Any]
    """Where its opener stood."""
    after: Mapping[str, Any]
    remarks: tuple[Note | Tally, ...]
    result: Message
    """What the opener was asked."""
    answer: Message
    request: bytes
    seconds: float
    """That it took."""
    clients: int = 1
    """That have it."""


class OpenedTogether:
    """The totals that some clients of a federation have opened, and others have not come to yet.

    A client gets a result only if it was sent the same bytes after the same sums, its opener stands where the first
    one's stood, and it was granted the same by the authority: then its own work would come to the same.

    Parameters
    ----------
    clients : how many there are; what all of them have opened is dropped.
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

    def open(
        self,
        history: bytes,
        message: Message,
        phase: str,
        round_number: int,
        result: Message,
        opener: RoundAuthority,
        work: Callable[[], tuple[Message, bytes]],
    ) -> tuple[Message, bytes]:
        """Return what a client's total of a round's phase opens to, and what it was asked for with.

        ``work`` opens it by the opener, which has begun the total's round. Raises as that does.
        """
        start = time.perf_counter()
        keys, before = opener.keys, opener.standing()
        assert isinstance(keys, GrantedKeys)
        known = self._known.get(history)
        if known is None:
            _, told = opener.pending()
            answer, request = work()
            self._known[history] = _Opened(
                message,
                keys,
                before,
                opener.standing(),
                opener.remarks_after(told),
                result,
                answer,
                request,
                time.perf_counter() - start,
            )
            return answer, request
        if not (
            keys.opens_as(known.keys)
            and _are_same(known.before, before)
            and (known.message is message or _are_same(known.message, message))
        ):
            answer, request = work()
            self._count(history, known)
            return answer, request
        # What clients missed is sent from one place: the next one's is found to be the same without being read.
        known.message = message
        opener.repeat(phase, round_number, known.result, known.answer, known.after, known.remarks)
        self._count(history, known)
        self._saved += max(0.0, known.seconds - (time.perf_counter() - start))
        return known.answer, known.request

    def _count(self, history: bytes, known: _Opened) -> None:
        """Count a client that has opened a total; drop what all have."""
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
