"""What clients that were not in a round have to open before they go on, where clients open sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from shieldfl.roles.message import Message, Part
from shieldfl.stateful import Stateful, refuse_unless

__all__ = ["MissedRounds", "missed_parts"]

_PART = "missed round "


def missed_parts(message: Message) -> tuple[Message, list[Message]]:
    """Divide a round's first message into what the authority signed and the ends of rounds that were missed."""
    missed = sorted(name for name in message if name.startswith(_PART))
    first = Message({name: part for name, part in message.items() if name not in missed})
    return first, [Message.from_bytes(message[name]) for name in missed]


class MissedRounds(Stateful):
    """The ends of rounds that some client has not been sent; each is kept once.

    Parameters
    ----------
    clients : how many there are.
    """

    changes: ClassVar = {"_dropped": int, "_ends": list[Message], "_sent": list[int]}

    def __init__(self, clients: int) -> None:
        self._dropped = 0
        self._ends: list[Message] = []
        # By client: how many ends it was sent.
        self._sent = [0] * clients

    def check_changed(self) -> None:
        """Raise WireFormatError for clients that have been sent what there is not."""
        super().check_changed()
        known = range(self._dropped, self._dropped + len(self._ends) + 1)
        refuse_unless(self._dropped >= 0 and all(sent in known for sent in self._sent))

    def is_of(self, clients: int) -> bool:
        """Say whether it is for so many clients."""
        return len(self._sent) == clients

    def add(self, end: Message, finished: Sequence[int]) -> None:
        """Keep the end of a round, which these clients get at once."""
        self._ends.append(end)
        for client in finished:
            if self._sent[client] == self._dropped + len(self._ends) - 1:
                self._sent[client] += 1
        self._drop()

    def parts(self, client: int) -> dict[str, Part]:
        """Return what a client has missed as parts of a message, which it is taken to get."""
        missing = self._ends[self._sent[client] - self._dropped :]
        self._sent[client] = self._dropped + len(self._ends)
        self._drop()
        return {f"{_PART}{number:08}": end.to_bytes() for number, end in enumerate(missing)}

    def _drop(self) -> None:
        gone = min(self._sent) - self._dropped
        del self._ends[:gone]
        self._dropped += gone
