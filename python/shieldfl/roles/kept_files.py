"""Sealed contents too long for a store's tables: each in a file of its own, under a key that the store keeps."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from shieldfl.errors import CapacityError, DataError, WireFormatError
from shieldfl.roles.held_file import sync_folder
from shieldfl.roles.role_state import LONGEST_SEALED_BYTES, TOO_LONG_TO_SEAL

__all__ = ["FILE_KEY_BYTES", "KeptFiles"]

FILE_KEY_BYTES = 32

_NONCE = bytes(12)  # each key seals one file
_NAME_BYTES = 16


class KeptFiles:
    """A folder beside a store: what is replaced there need not be copied into a journal first, nor overwritten.

    A file's key is in the store alone, in a row that the store overwrites once the content is another one: then what a
    disk may have left of the file opens by what it may have left of that row, also in the store's rollback journal.

    Parameters
    ----------
    folder : its path; made with the first file.
    store : 16 hexadecimal digits that the names of this store's files end in; those of others are not touched.
    nothing : what has not happened where a file cannot be written, in a sentence.
    """

    def __init__(self, folder: Path, store: str, nothing: str) -> None:
        self._folder = folder
        self._store = store
        self._name = re.compile(rf"[0-9a-f]{{{2 * _NAME_BYTES}}}-{store}")
        self._nothing = nothing

    def write(self, content: bytes) -> tuple[str, bytes]:
        """Write a content, on the disk once this returns; return the file's name, and the key that it is sealed under.

        Raises DataError where the disk is full, cannot be written or fails, and for a folder that is a link;
        CapacityError for a content of 2 GiB. Then there is no file.
        """
        if len(content) > LONGEST_SEALED_BYTES:
            raise CapacityError(f"{TOO_LONG_TO_SEAL}. {self._nothing}")
        name, key = f"{secrets.token_hex(_NAME_BYTES)}-{self._store}", secrets.token_bytes(FILE_KEY_BYTES)
        path = self._folder / name
        try:
            if self._folder.is_symlink():
                # What it leads to may be another copy of this store's, whose files would be deleted as nobody's.
                raise DataError(f"{self._folder} is a link: put the folder itself there. {self._nothing}")
            if not self._folder.exists():
                self._made()
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(descriptor, "wb", buffering=0) as file:
                    left = memoryview(_cipher(key).encrypt(_NONCE, content, name.encode()))
                    while left:
                        left = left[file.write(left) :]
                    os.fsync(file.fileno())
                sync_folder(path)
            except BaseException:
                self.delete([name])
                raise
        except DataError:  # which is an OSError, too
            raise
        except OSError as error:
            raise DataError(
                f"a file in {self._folder} cannot be written: free some space there, and look at its owner and its "
                f"permissions. {self._nothing}"
            ) from error
        return name, key

    def _made(self) -> None:
        self._folder.mkdir(mode=0o700)
        try:
            sync_folder(self._folder)
        except BaseException:
            self._folder.rmdir()  # the next one would not see to it that it is found after a power failure
            raise

    def read(self, name: str, key: bytes) -> bytes:
        """Return a file's content.

        Raises DataError where the disk does not give it; WireFormatError where it is missing, or was altered.
        """
        from cryptography.exceptions import InvalidTag

        path = self._folder / name
        try:
            return bytes(_cipher(key).decrypt(_NONCE, path.read_bytes(), name.encode()))
        except FileNotFoundError:
            raise WireFormatError(
                f"the file {path} is missing: it belongs to the store beside its folder, and to every copy of that"
            ) from None
        except InvalidTag:
            raise WireFormatError(f"the file {path} was altered, or is another copy's") from None
        except OSError as error:
            raise DataError(f"the file {path} cannot be read: mend the disk, then try again") from error

    def delete(self, names: Iterable[str]) -> None:
        """Delete files that the store has no more. What the disk does not delete now, :meth:`delete_others` will."""
        for name in names:
            with contextlib.suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)

    def delete_others(self, names: Collection[str]) -> None:
        """Delete all that :meth:`write` wrote but these, as far as the disk lets it be deleted.

        Their keys are gone, or were never kept: they take room, and nothing else.
        """
        with contextlib.suppress(OSError):
            if not self._folder.is_symlink():
                self.delete(
                    path.name
                    for path in list(self._folder.iterdir())
                    if self._name.fullmatch(path.name) and path.name not in names
                )


def _cipher(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)
