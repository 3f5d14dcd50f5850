"""A role's state in bytes, bound to its session and role, and the folder of a run that can be resumed."""

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
from shieldfl.authority.private_file import (
    LONGEST_SEALED_BYTES,
    TOO_LONG_TO_SEAL,
    disk_errors_as,
    drawn_key,
    write_private_file,
)
from shieldfl.build_info import cryptographic
from shieldfl.errors import CapacityError, KeyMismatchError, ParameterError, WireFormatError

SEALING_KEY_BYTES = 32

_MAGIC = b"shieldfl role state 1\n"
_HEAD = struct.Struct("<?H")
_DIGEST_BYTES = 32
_NONCE_BYTES = 12


def pack_state(owner: bytes, record: bytearray, key: bytes | None) -> bytes:
    """Return a state's bytes: a head that names its owner, then the record, with a checksum or sealed.

    With a key, AES-256-GCM seals the record. Raises CapacityError for a record of 2 GiB or more that is to be
    sealed.
    """
    head = _MAGIC + _HEAD.pack(key is not None, len(owner)) + owner
    if key is None:
        digest = hashlib.sha256(head)
        digest.update(record)
        return b"".join((head, record, digest.digest()))
    if len(record) > LONGEST_SEALED_BYTES:
        raise CapacityError(TOO_LONG_TO_SEAL)
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return b"".join((head, nonce, _cipher(key).encrypt(nonce, record, head)))


def unpack_state(owner: bytes, data: Buffer, key: bytes | None) -> Buffer:
    """Return the record of a state that :func:`pack_state` wrote for the same owner.

    The record of an unsealed state is a view of ``data``. Raises KeyMismatchError for another owner or key,
    ParameterError for a key that is missing or needless; WireFormatError.
    """
    # The views end with this block: a mapped file could otherwise not be closed while an error propagates.
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
                        "the state was sealed under another key, or was truncated or altered: pass the key "
                        "and the bytes that were kept"
                    ) from None
    return memoryview(data)[start:end]


def _checked_body(owner: bytes, content: memoryview, key: bytes | None) -> tuple[int, int]:
    """Check a state's head and owner; return where its record, or its sealed part, begins and ends."""
    start = len(_MAGIC) + _HEAD.size
    if content[: len(_MAGIC)] != _MAGIC or len(content) < start:
        raise WireFormatError("these bytes are not a role's state, or another version of shieldfl wrote them")
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
"""Pattern of the suffix that :func:`write_private_file` gives a file until it is whole."""


class RunFolder:
    """Holds a run's checkpoint, secrets included: the key that seals the states lies beside them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file = folder / "checkpoint"

    def _disk(self) -> AbstractContextManager[None]:
        return disk_errors_as(
            f"the checkpoint in {self.folder} cannot be read or written: check its permissions, and "
            "whether the disk is full"
        )

    @property
    def is_begun(self) -> bool:
        return self._file.exists()

    def key(self) -> bytes:
        """Return the key that seals states, 32 bytes; the first call draws it. Raises DataError."""
        path = self.folder / "key"
        with self._disk():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return drawn_key(path, SEALING_KEY_BYTES)

    def write(self, message: Message) -> None:
        """Replace the checkpoint in one step. Raises DataError."""
        content = message.to_bytes()
        with self._disk():
            write_private_file(self._file, hmac.digest(self.key(), content, "sha256"), content)

    def read(self) -> Message:
        """Return the checkpoint, and delete unfinished files of a process that was killed.

        Raises DataError if it cannot be read, WireFormatError if it was altered.
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
        """Write a file that never changes; return its digest, 32 bytes, to read it by. Raises DataError."""
        with self._disk():
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private_file(self.folder / name, content)
        return hashlib.sha256(content).digest()

    def read_beside(self, name: str, digest: bytes) -> bytes:
        """Return the content of a file that :meth:`write_beside` wrote.

        Raises DataError, and WireFormatError if the content has another digest.
        """
        with self._disk():
            content = (self.folder / name).read_bytes()
        if not hmac.compare_digest(hashlib.sha256(content).digest(), digest):
            raise WireFormatError(f"the file {name} in {self.folder} was altered: restore the folder")
        return content
