"""What a role has answered, so that it answers the same again and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

from shieldfl.errors import PolicyError
from shieldfl.roles.message import Message
from shieldfl.stateful import Stateful

__all__ = ["Replies"]


class Replies(Stateful):
    """One reply for each phase of a round: a lost one can be asked for again, a second one is never made.

    A second reply to other words would be fresh noise on the same values, or another sum of the same round. So a role
    keeps one of these for its life, also where a round is begun again. The last request of each
    phase is kept whole: to hash megabytes takes about as long as to open what is in them. Requests of several threads
    wait for each other: one that comes again while the first is being answered gets the first one's reply.
    """

    changes: ClassVar = {"_given": dict[str, tuple[int, Message | None, Message]], "_over": int}

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # By phase: the round, the request, the reply.
        self._given: dict[str, tuple[int, Message | None, Message]] = {}
        # The newest round whose replies were forgotten.
        self._over = -1

    @property
    def phases(self) -> set[str]:
        """In which something was answered."""
        return set(self._given)

    def newest(self, phase: str) -> tuple[int, Message | None]:
        """Return the last round that was answered in a phase, and its reply; -1 and None before the first."""
        with self._lock:
            number, _, reply = self._given.get(phase, (-1, None, None))
            return number, reply

    def forget(self) -> None:
        """Forget what was replied so far: it is refused to whoever asks again, as another reply would be."""
        with self._lock:
            self._over = max((number for number, _, _ in self._given.values()), default=self._over)
            self._given = {phase: (number, None, Message()) for phase, (number, _, _) in self._given.items()}

    def reply(
        self,
        phase: str,
        round_number: int,
        request: Message | None,
        make: Callable[[], Message],
        owner: object | None = None,
    ) -> Message:
        """Return the reply to this request, made by ``make`` unless it was given before.

        Raises PolicyError for another request of a round that was answered, or of one before it, and for a round whose
        replies were forgotten. Where ``make`` raises,
        nothing counts as answered, and the attributes of the ``owner``, which it may have put new values in the place
        of, are what they were: the same request again starts from the same.
        """
        with self._lock:
            last_round, last_request, last_reply = self._given.get(phase, (-1, None, Message()))
            if round_number <= self._over:
                raise PolicyError(f"round {round_number} is over: nothing of it is sent again")
            if (last_round, last_request) == (round_number, request):
                return last_reply
            if round_number <= last_round:
                raise PolicyError(
                    f"round {last_round} has been answered in phase {phase!r}: another answer of round "
                    f"{round_number} is not given"
                )
            attributes = {} if owner is None else vars(owner)
            try:
                before = attributes.copy()
                reply = make()
                self._given[phase] = (round_number, request, reply)
            except BaseException:
                # An interrupt may come after the reply was kept, too.
                if self._given.get(phase, (-1,))[0] != round_number:
                    attributes.update(before)
                raise
            return reply
