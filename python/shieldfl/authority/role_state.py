"""The state of a role as it is kept, bound to session and role.

And the folder of a run that can be gone on with.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from shieldfl.array_view import Buffer, frame_buffer
from shieldfl.authority.message import Message
from shieldfl.authority.private_file import disk_errors_as, drawn_key, write_private_file
from shieldfl.build_info import cryptographic
from shieldfl.errors import CapacityError, KeyMismatchError, ParameterError, WireFormatError

SEALING_KEY_BYTES = 32

LONGEST_SEALED_BYTES = 2**31 - 1
"""What AES-GCM of the package ``cryptography`` takes in one call."""

TOO_LONG_TO_SEAL = "what is to be kept has 2 GiB or more, and cannot be sealed: divide the model into parts"

_MAGIC = b"shieldfl role state 1\n"
_HEAD = struct.Struct("<?H")
_DIGEST_BYTES = 32
_NONCE_BYTES = 12


def pack_state(owner: bytes, record: bytearray, key: bytes | None) -> bytes:
    """Write a state: a head that names its owner, then the record with a checksum, or sealed by AES-256-GCM.

    Where it is sealed, the record is overwritten, also where that is refused. Raises CapacityError from 2 GiB
    on.
    """
    head = _MAGIC + _HEAD.pack(key is not None, len(owner)) + owner
    if key is None:
        digest = hashlib.sha256(head)
        digest.update(record)
        return b"".join((head, record, digest.digest()))
    try:
        if len(record) > LONGEST_SEALED_BYTES:
            raise CapacityError(TOO_LONG_TO_SEAL)
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return head + nonce + bytes(_cipher(key).encrypt(nonce, record, head))
    finally:
        record[:] = bytes(len(record))


def unpack_state(owner: bytes, data: Buffer, key: bytes | None) -> Buffer:
    """Read what :func:`pack_state` wrote, for the same owner; where it is not sealed, a view of it.

    Raises KeyMismatchError for another owner or key, ParameterError for a key that is missing or needless;
    WireFormatError.
    """
    # Given back wherever this ends: what maps a file could else not be closed while an error is on its way.
    with memoryview(frame_buffer(data)) as whole, whole.cast("B") as content:
        start, end = _checked_body(owner, content, key)
        if key is not None:
            from cryptography.exceptions import InvalidTag

            nonce_end = start + _NONCE_BYTES
            with content[nonce_end:] as sealed:
                try:
                    nonce, head = bytes(content[start:nonce_end]), bytes(content[:start])
                    return bytes(_cipher(key).decrypt(nonce, sealed, head))
                except InvalidTag:
                    raise KeyMismatchError(
                        "the state was sealed under another key, or was truncated or altered"
                    ) from None
    return memoryview(data)[start:end]


def _checked_body(owner: bytes, content: memoryview, key: bytes | None) -> tuple[int, int]:
    """Return from where to where the record, or what is sealed, stands in a state of this owner."""
    start = len(_MAGIC) + _HEAD.size
    if content[: len(_MAGIC)] != _MAGIC or len(content) < start:
        raise WireFormatError("these bytes are no state of a role that this version can read")
    if content[len(_MAGIC)] > 1:
        raise WireFormatError("the state is damaged")
    sealed, length = _HEAD.unpack_from(content, len(_MAGIC))
    body, end = start + length, len(content) - _DIGEST_BYTES
    if end < body:
        raise WireFormatError("the state is truncated")
    if not sealed:
        with content[:end] as checked:
            digest = hashlib.sha256(checked).digest()
        if digest != bytes(content[end:]):
            raise WireFormatError("the state is truncated, or was altered")
    if bytes(content[start:body]) != owner:
        raise KeyMismatchError("this is the state of another session, role, client, weight or method")
    if sealed != (key is not None):
        raise ParameterError(
            "the state is sealed: pass its key" if sealed else "the state is not sealed: pass no key"
        )
    return body, end


def _cipher(key: bytes) -> Any:
    if not isinstance(key, bytes) or len(key) != SEALING_KEY_BYTES:
        raise ParameterError(f"a sealing key has {SEALING_KEY_BYTES} random bytes")
    return cryptographic("ciphers.aead", "sealed states").AESGCM(key)


_LATER_NAMES = "[0-9a-f]" * 8
"""What :func:`write_private_file` names a file by before it is whole."""


class RunFolder:
    """Holds all that the run does, secrets included: states are sealed under a key that lies beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "checkpoint"

    def _disk(self) -> AbstractContextManager[None]:
        return disk_errors_as(
            f"the checkpoint in {self.folder} cannot be read or written: look at its permissions, and "
            "whether the disk is full"
        )

    @property
    def is_begun(self) -> bool:
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
        """Return what was written last, and delete what a process that was killed had not written to its end.

        Raises DataError where that cannot be read, WireFormatError if it was altered.
        """
        with self._disk():
            content = self._file.read_bytes()
            for cut_off in self.folder.glob(f"*.{_LATER_NAMES}"):
                cut_off.unlink(missing_ok=True)
        body = memoryview(content)[_DIGEST_BYTES:]
        if not hmac.compare_digest(hmac.digest(self.key(), body, "sha256"), content[:_DIGEST_BYTES]):
            raise WireFormatError(f"the checkpoint in {self.folder} was altered: restore the folder")
        return Message.from_bytes(bytes(body))

    def write_beside(self, name: str, content: bytes) -> bytes:
        """Write a file that stays as it is; return the digest to read it by, 32 bytes. Raises DataError."""
        with self._disk():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private_file(self.folder / name, content)
        return hashlib.sha256(content).digest()

    def read_beside(self, name: str, digest: bytes) -> bytes:
        """Return what :meth:`write_beside` wrote.

        Raises DataError, and WireFormatError for another file's content.
        """
        with self._disk():
            content = (self.folder / name).read_bytes()
        if not hmac.compare_digest(hashlib.sha256(content).digest(), digest):
            raise WireFormatError(f"the file {name} in {self.folder} was altered: restore the folder")
        return content
