"""What clients that were not in a round have to open before they go on, where clients open sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from shieldfl.methods.protocol.list_authority import HISTORY_BYTES, next_history
from shieldfl.roles.message import Message, Part
from shieldfl.stateful import Stateful, refuse_unless

__all__ = ["MissedRounds", "missed_parts"]

_PART = "missed round "


def missed_parts(message: Message, read: Callable[[Part], Message]) -> tuple[Message, list[Message]]:
    """Divide a round's first message into what the authority signed and the ends of rounds that were missed.

    ``read`` makes messages of these ends.
    """
    missed = sorted(name for name in message if name.startswith(_PART))
    first = Message({name: part for name, part in message.items() if name not in missed})
    return first, [read(message[name]) for name in missed]


class MissedRounds(Stateful):
    """The ends of rounds that some client is not known to have; each is kept once.

    A client that has sent something of a round has all that came before. Until then what it was sent may be lost.

    Parameters
    ----------
    clients : how many there are.
    """

    changes: ClassVar = {
        "history": bytes,
        "_dropped": int,
        "_ends": list[bytes],
        "_sent": list[int],
        "_known": list[int],
    }

    def __init__(self, clients: int) -> None:
        self.history = bytes(HISTORY_BYTES)
        """Of all answers so far, see :func:`next_history`."""
        self._dropped = 0
        self._ends: list[bytes] = []
        # By client: how many ends it was sent, and how many it is known to have.
        self._sent = [0] * clients
        self._known = [0] * clients

    def check_changed(self) -> None:
        """Raise WireFormatError for clients that have been sent what there is not."""
        super().check_changed()
        there = range(self._dropped, self._dropped + len(self._ends) + 1)
        refuse_unless(len(self.history) == HISTORY_BYTES)
        refuse_unless(self._dropped >= 0 and len(self._known) == len(self._sent))
        refuse_unless(all(count in there for count in (*self._sent, *self._known)))

    def is_of(self, clients: int) -> bool:
        """Say whether it is for so many clients."""
        return len(self._sent) == clients

    def add(self, end: Message, request: Part, finished: Sequence[int]) -> None:
        """Keep the end of a round that this request was answered for, which these clients are sent at once."""
        self.history = next_history(self.history, bytes(request))
        self._ends.append(end.to_bytes())
        for client in finished:
            if self._sent[client] == self._newest - 1:
                self._sent[client] += 1

    def parts(self, client: int, *, again: bool = False) -> dict[str, Part]:
        """Return what a client was not sent as parts of a message; ``again``: what it is not known to have."""
        since = self._known[client] if again else self._sent[client]
        self._sent[client] = self._newest
        missing = self._ends[since - self._dropped :]
        return {f"{_PART}{number:08}": end for number, end in enumerate(missing)}

    def hear(self, client: int) -> None:
        """Take note that a client has everything: it has sent something that comes of it."""
        self._known[client] = self._sent[client] = self._newest
        gone = min(self._known) - self._dropped
        del self._ends[:gone]
        self._dropped += gone

    @property
    def _newest(self) -> int:
        return self._dropped + len(self._ends)
