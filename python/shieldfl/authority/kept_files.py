"""Contents too long for a store's table: sealed files beside it, whose keys are in the store alone."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from shieldfl.authority.private_file import disk_errors_as, sync_folder, write_private_file
from shieldfl.authority.role_state import LONGEST_SEALED_BYTES, TOO_LONG_TO_SEAL
from shieldfl.build_info import cryptographic
from shieldfl.errors import CapacityError, DataError, WireFormatError

LONGEST_IN_TABLE_BYTES = 65_536
"""Longest content in bytes that stands in the table; a longer one is a file.

Pages of a table are written three times: to the journal, in place, and over with zeros.
"""

_NONCE = bytes(12)  # each key seals a single file
_NAME_BYTES = 16
_NAME = rf"[0-9a-f]{{{2 * _NAME_BYTES}}}-%s(\.[0-9a-f]{{8}})?"  # and the suffix of an unfinished file


def _cipher(key: bytes) -> Any:
    return cryptographic("ciphers.aead", "stores").AESGCM(key)


class Kept(NamedTuple):
    """What a record holds of a content: itself, or the name and key of its file."""

    content: bytes
    file: str = ""
    key: bytes = b""


class KeptFiles:
    """The files of one store, in the folder ``PATH-kept``, under names that end in ``own_name``.

    Back both up together. A file's key is in a row that the store overwrites when the content changes. What a
    disk then keeps of the file can be opened only with what it keeps of that row, also in the store's
    rollback journal.

    Parameters
    ----------
    store : path of the store's file.
    own_name : 16 hexadecimal digits of this store.
    nothing : sentence that says what has not been done, after an error.
    """

    def __init__(self, store: Path, own_name: str, nothing: str) -> None:
        # It lies beside the file itself, even if that was opened by a link.
        path = store.resolve()
        self._folder = path.with_name(f"{path.name}-kept")
        self._own_name, self._nothing = own_name, nothing

    def keep(self, content: bytes) -> Kept:
        """Return what the record of a content holds; a long one is in a file by then."""
        return Kept(content) if len(content) <= LONGEST_IN_TABLE_BYTES else Kept(b"", *self.write(content))

    def content(self, kept: Kept) -> bytes:
        return self.read(kept.file, kept.key) if kept.file else kept.content

    def write(self, content: bytes) -> tuple[str, bytes]:
        """Write a content, on the disk once this returns; return the file's name and key.

        If it raises an error, there is no file.
        """
        if len(content) > LONGEST_SEALED_BYTES:
            raise CapacityError(f"{TOO_LONG_TO_SEAL}. {self._nothing}")
        name, key = f"{secrets.token_hex(_NAME_BYTES)}-{self._own_name}", secrets.token_bytes(32)
        folder = self._folder
        words = (
            f"a file in {folder} cannot be written: free some space there, and check its owner and its "
            f"permissions. {self._nothing}"
        )
        with disk_errors_as(words):
            if folder.is_symlink():
                # It may lead to the folder of another copy of this store, whose files would be deleted.
                raise DataError(f"{folder} is a link: put the folder itself there. {self._nothing}")
            if not folder.exists():
                folder.mkdir(mode=0o700)
                try:
                    sync_folder(folder)
                except BaseException:
                    folder.rmdir()  # a second attempt would not sync it against a power failure
                    raise
            try:
                write_private_file(folder / name, _cipher(key).encrypt(_NONCE, content, name.encode()))
            except BaseException:
                self.delete([name])
                raise
        return name, key

    def read(self, name: str, key: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        path = self._folder / name
        try:
            return bytes(_cipher(key).decrypt(_NONCE, path.read_bytes(), name.encode()))
        except FileNotFoundError:
            raise WireFormatError(
                f"the file {path} is missing: restore it together with the store beside its folder"
            ) from None
        except InvalidTag:
            raise WireFormatError(
                f"the file {path} was altered, or belongs to another copy of the store"
            ) from None
        except OSError as error:
            raise DataError(f"the file {path} cannot be read: mend the disk, then try again") from error

    def delete(self, names: Iterable[str]) -> None:
        """Delete files that the store no longer has; :meth:`delete_others` retries those that fail now."""
        for name in names:
            with contextlib.suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)

    def delete_others(self, names: Collection[str]) -> None:
        """Delete all files but these: replaced ones, and those of processes that ended before a commit."""
        with contextlib.suppress(OSError):
            if not self._folder.is_symlink():
                there = [path.name for path in self._folder.iterdir()]
                own = [name for name in there if re.fullmatch(_NAME % self._own_name, name)]
                self.delete(name for name in own if name not in names)
