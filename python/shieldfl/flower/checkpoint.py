"""What a server needs to go on with a run that ended before its last round, on its disk after each one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from shieldfl.errors import DataError, WireFormatError
from shieldfl.roles.message import Message
from shieldfl.roles.run_folder import RunFolder

__all__ = ["Checkpoint", "Progress"]


@dataclass(frozen=True)
class Progress:
    """How far a run has come, as plain data."""

    round: int
    """The last that ended, or was given up."""
    session: bytes
    weights: list[int]
    layout: str
    is_embedded: bool
    """Whether the key authority is in the server's process."""
    weighting: str
    """As the settings had it, ``buffers`` and ``opener`` too."""
    buffers: str
    method_settings: str
    """The method's own, as they were given, in JSON."""
    opener: str | None = None
    idle: list[int] = field(default_factory=list)
    """Clients with no samples, which are in no round."""
    metrics: dict[int, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """By round and kind, what the app's own strategy made of metrics."""
    ended: dict[int, int] = field(default_factory=dict)
    """By client, the round whose end it is not known to have."""
    nodes: dict[int, int] = field(default_factory=dict)
    """By client, which node it was."""
    positions: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By client, how far its store had come."""
    events: dict[int, int] = field(default_factory=dict)
    """By client, how many of its privacy events the account has."""
    format: Literal["shieldfl checkpoint 1"] = "shieldfl checkpoint 1"


class Checkpoint(RunFolder):
    """The folder of one run, which holds what the server holds."""

    @property
    def nodes(self) -> str:
        """Where the nodes of a simulation keep their stores."""
        return str(self.folder.absolute() / "nodes")

    def keep(self, progress: Progress, parts: Mapping[str, bytes]) -> None:
        """Write how far the run has come, and the roles' states, in one step. Raises DataError."""
        self.write(Message({"progress": msgspec.msgpack.encode(progress), **parts}))

    def kept(self) -> tuple[Progress, Message]:
        """Return what was kept last. Raises DataError for nothing, WireFormatError for what was altered."""
        if not self.is_begun:
            raise DataError(f"there is no checkpoint in {self.folder}: begin the run without shieldfl.resume")
        message = self.read()
        try:
            progress = msgspec.msgpack.decode(message["progress"], type=Progress)
        except msgspec.MsgspecError as error:
            raise WireFormatError("the checkpoint is of another version of shieldfl") from error
        return progress, message
