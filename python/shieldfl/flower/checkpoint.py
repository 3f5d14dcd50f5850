"""What a server needs to go on with a run that ended before its last round, on its disk after each one."""

from __future__ import annotations

import contextlib
import hmac
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from shieldfl.errors import DataError, WireFormatError
from shieldfl.roles.message import Message
from shieldfl.roles.private_file import write_private_file

__all__ = ["Checkpoint", "Progress"]

_FORMAT = "shieldfl checkpoint 1"


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
    metrics: dict[int, dict[str, dict[str, Any]]] = field(default_factory=dict)
    """By round and kind, what the app's own strategy made of metrics."""
    ended: dict[int, int] = field(default_factory=dict)
    """By client, the round whose end it is not known to have."""
    nodes: dict[int, int] = field(default_factory=dict)
    """By client, which node it was."""
    positions: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By client, how far its store had come."""
    format: str = _FORMAT


class Checkpoint:
    """A folder of one run. It holds what the server holds: states are sealed under a key beside them.

    Parameters
    ----------
    folder : made where there is none.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "checkpoint"

    @property
    def nodes(self) -> str:
        """Where the nodes of a simulation keep their stores."""
        return str(self.folder.absolute() / "nodes")

    @contextlib.contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except DataError:
            raise
        except OSError as error:
            raise DataError(
                f"the checkpoint in {self.folder} cannot be read or written: look at its permissions, and whether the "
                "disk is full"
            ) from error

    @property
    def is_begun(self) -> bool:
        """Whether there is something to go on from."""
        return self._file.exists()

    def key(self) -> bytes:
        """Return what seals states, 32 bytes; it is drawn the first time. Raises DataError."""
        path = self.folder / "key"
        with self._disk():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not path.exists():
                write_private_file(path, secrets.token_bytes(32))
            return path.read_bytes()

    def write(self, progress: Progress, parts: Mapping[str, bytes]) -> None:
        """Write how far the run has come, and the roles' states, in one step. Raises DataError."""
        message = Message({"progress": msgspec.msgpack.encode(progress), **parts})
        content = message.to_bytes()
        with self._disk():
            write_private_file(self._file, hmac.digest(self.key(), content, "sha256") + content)

    def read(self) -> tuple[Progress, Message]:
        """Return what was written last. Raises DataError for nothing, WireFormatError for what was altered."""
        if not self.is_begun:
            raise DataError(f"there is no checkpoint in {self.folder}: begin the run without shieldfl.resume")
        with self._disk():
            content = self._file.read_bytes()
        if not hmac.compare_digest(hmac.digest(self.key(), content[32:], "sha256"), content[:32]):
            raise WireFormatError(f"the checkpoint in {self.folder} was altered: restore the folder")
        message = Message.from_bytes(content[32:])
        try:
            progress = msgspec.msgpack.decode(message["progress"], type=Progress)
        except msgspec.MsgspecError as error:
            raise WireFormatError("the checkpoint is of another version of shieldfl") from error
        if progress.format != _FORMAT:
            raise WireFormatError("the checkpoint is of another version of shieldfl")
        return progress, message
