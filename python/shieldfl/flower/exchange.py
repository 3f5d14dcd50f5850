"""Messages to nodes and their replies, by Flower's grid."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from logging import INFO
from typing import Any

from flwr.app import Error, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode
from flwr.common.serde import recorddict_to_proto
from flwr.serverapp import Grid
from flwr.supercore import log

from shieldfl import errors

__all__ = ["Exchange", "is_shields"]

_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0
_TELLS_EVERY_SECONDS = 10.0


class Exchange:
    """Sends to nodes and waits for those that answer; looks more often than ``Grid.send_and_receive``, every 3 s.

    Parameters
    ----------
    grid : of the run.
    timeout_seconds : how long a message and its reply are waited for; after that it is not delivered any more.
    """

    def __init__(self, grid: Grid, timeout_seconds: float) -> None:
        self._grid = grid
        self._timeout = timeout_seconds
        self._told = (0, 0)
        self.bytes_up = self.bytes_down = 0
        """Of all messages' contents, as Flower encodes them."""

    def ask(
        self, contents: Mapping[int, RecordDict], group: str, kind: str = MessageType.TRAIN
    ) -> Sequence[Message]:
        """Send each node its content, and return the replies, errors among them, one for a node at most."""
        messages = [
            Message(content, node, kind, ttl=self._timeout, group_id=group)
            for node, content in contents.items()
        ]
        self.bytes_down += sum(map(_bytes_of, messages))
        waiting = {one for one in self._grid.push_messages(messages) if one}
        del messages
        replies: dict[Any, Message] = {}
        until, pause = time.monotonic() + self._timeout, _SHORTEST_PAUSE
        while waiting and time.monotonic() < until:
            found = list(self._grid.pull_messages(waiting))
            for reply in found:
                waiting.discard(reply.metadata.reply_to_message_id)
                replies.setdefault(reply.metadata.reply_to_message_id, reply)
                self.bytes_up += _bytes_of(reply)
            if waiting and not found:
                time.sleep(pause)
                pause = min(_LONGEST_PAUSE, 1.3 * pause)
        return list(replies.values())

    def bytes_moved(self, *, since_asked: bool = True) -> str:
        """Say what Flower's messages have taken, since this was asked last or in all."""
        before = self._told if since_asked else (0, 0)
        self._told = (self.bytes_up, self.bytes_down)
        up, down = (now - then for now, then in zip(self._told, before, strict=True))
        return f"{up:,} bytes up, {down:,} bytes down"

    def nodes(self, count: int) -> list[int]:
        """Return the nodes that are there, once there are so many; until then, log what is missing.

        Raises TimeoutError.
        """
        began, told = time.monotonic(), 0
        while len(found := list(self._grid.get_node_ids())) < count:
            waited = time.monotonic() - began
            missing = f"{len(found)} of {count} nodes are there"
            remedy = (
                f'start the others, in a simulation by flwr run --federation-config "num-supernodes={count}", or set '
                "shieldfl.clients to fewer"
            )
            if waited > self._timeout:
                raise TimeoutError(f"{missing} after {self._timeout:.0f} s: {remedy}")
            if waited >= told * _TELLS_EVERY_SECONDS:
                told += 1
                log(INFO, "shieldfl: %s, and the run waits for all: %s", missing, remedy)
            time.sleep(min(1.0, self._timeout / 10))
        return sorted(found)


def is_shields(error: Error) -> bool:
    """Say whether a reply's error is ShieldMod's or Flower's: else the app or another mod was called in its place."""
    kind = getattr(errors, (error.reason or "").partition(":")[0], None)
    is_apps = error.code in (ErrorCode.CLIENT_APP_RAISED_EXCEPTION, ErrorCode.MOD_FAILED_PRECONDITION)
    return not is_apps or (isinstance(kind, type) and issubclass(kind, errors.ShieldError))


def _bytes_of(message: Message) -> int:
    return 0 if message.has_error() else int(recorddict_to_proto(message.content).ByteSize())
