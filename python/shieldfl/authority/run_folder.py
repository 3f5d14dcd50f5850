"""A folder of one run that can be gone on with: what it takes, in one file that is replaced whole."""

from __future__ import annotations

import hmac
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path

from shieldfl.authority.message import Message
from shieldfl.authority.private_file import disk_errors_as, drawn_key, write_private_file
from shieldfl.authority.role_state import SEALING_KEY_BYTES
from shieldfl.errors import WireFormatError

_FILE = "checkpoint"
_MAC_BYTES = 32
_LATER_NAMES = "[0-9a-f]" * 8
"""What :func:`write_private_file` names a file by before it is whole."""


class RunFolder:
    """Holds all that the run does, secrets included: states are sealed under a key that lies beside them.

    Parameters
    ----------
    folder : made, for its owner alone, where there is none.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / _FILE

    def _disk(self) -> AbstractContextManager[None]:
        return disk_errors_as(
            f"the checkpoint in {self.folder} cannot be read or written: look at its permissions, and whether the disk "
            "is full"
        )

    @property
    def is_begun(self) -> bool:
        """Whether there is something to go on from."""
        return self._file.exists()

    def key(self) -> bytes:
        """Return what seals states, 32 bytes; it is drawn the first time. Raises DataError."""
        path = self.folder / "key"
        with self._disk():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return drawn_key(path, SEALING_KEY_BYTES)

    def write(self, message: Message) -> None:
        """Replace what was written last, in one step. Raises DataError."""
        content = message.to_bytes()
        with self._disk():
            write_private_file(self._file, hmac.digest(self.key(), content, "sha256"), content)

    def read(self) -> Message:
        """Return what was written last. Raises DataError where that cannot be read, WireFormatError if it was altered.

        What a process that was killed had not written to its end is deleted: it holds as much as the rest.
        """
        with self._disk():
            content = self._file.read_bytes()
            for cut_off in self.folder.glob(f"*.{_LATER_NAMES}"):
                cut_off.unlink(missing_ok=True)
        body = memoryview(content)[_MAC_BYTES:]
        if not hmac.compare_digest(hmac.digest(self.key(), body, "sha256"), content[:_MAC_BYTES]):
            raise WireFormatError(f"the checkpoint in {self.folder} was altered: restore the folder")
        return Message.from_bytes(bytes(body))

    def write_beside(self, name: str, content: bytes) -> bytes:
        """Write a file that stays as it is; return the digest to read it by, 32 bytes. Raises DataError."""
        with self._disk():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private_file(self.folder / name, content)
        return sha256(content).digest()

    def read_beside(self, name: str, digest: bytes) -> bytes:
        """Return what :meth:`write_beside` wrote. Raises DataError, and WireFormatError for another file's content."""
        with self._disk():
            content = (self.folder / name).read_bytes()
        if not hmac.compare_digest(sha256(content).digest(), digest):
            raise WireFormatError(f"the file {name} in {self.folder} was altered: restore the folder")
        return content
