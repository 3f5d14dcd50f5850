"""The memory of a node whose steps each run in their own process: sealed contents, and what was sent."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from shieldfl.authority.private_file import disk_errors_as, sync_folder, write_private_file
from shieldfl.authority.role_state import LONGEST_SEALED_BYTES, TOO_LONG_TO_SEAL
from shieldfl.authority.store import AT_PLACE, Place, Store, Transaction, decoded, encoded
from shieldfl.build_info import cryptographic
from shieldfl.errors import CapacityError, DataError, PolicyError, WireFormatError

_NONCE = bytes(12)  # each key seals a single file
_NAME_BYTES = 16
_NAME = rf"[0-9a-f]{{{2 * _NAME_BYTES}}}-%s(\.[0-9a-f]{{8}})?"  # and the suffix of an unfinished file


def _cipher(key: bytes) -> Any:
    return cryptographic("ciphers.aead", "stores").AESGCM(key)


UPDATE_OF_ANOTHER_ROUND = (
    "this update was trained in another round or run, too: two sums could tell it from the others'. "
    "Train further, or from another seed"
)
"""Message that refuses an update which another round or run has had."""

LONGEST_IN_TABLE_BYTES = 65_536
"""Longest content in bytes that stands in the table; a longer one is a file.

Pages of a table are written three times: to the journal, in place, and over with zeros.
"""


class StepStore(Store):
    """Keeps sealed contents of sessions by name, and the rounds in which something of an update was sent.

    A role's state contains its key ratchet, and one transaction writes the state and what leaves. An old copy
    could make a round's second frame: see :class:`~shieldfl.authority.store.Store`. Long contents are files
    of the folder ``PATH-kept``, under names that end in 16 hexadecimal digits of this store: back both up
    together. Only :meth:`keep` deletes files, so an old copy that is opened, and refused, has deleted
    nothing.

    A file's key is in the store alone, in a row that the store overwrites when the content changes. What a
    disk then keeps of the file can be opened only with what it keeps of that row, also in the store's
    rollback journal.
    """

    _kinds, _of_epoch = ("moved", "update"), ("kept", "file")
    _owner = hashlib.sha256(b"shieldfl step store 1\0").digest()
    _nothing = "Nothing was kept, and no reply may leave"
    _why_uncopied = "holds a client's secrets and is neither copied nor pickled: open it where it is used"

    @functools.cached_property
    def _folder(self) -> Path:
        # It lies beside the file itself, even if that was opened by a link.
        path = self._path.resolve()
        return path.with_name(f"{path.name}-kept")

    def _written(self, content: bytes, store: str) -> tuple[str, bytes]:
        """Write a content, on the disk once this returns; return the file's name and key.

        If it raises an error, there is no file.
        """
        if len(content) > LONGEST_SEALED_BYTES:
            raise CapacityError(f"{TOO_LONG_TO_SEAL}. {self._nothing}")
        name, key = f"{secrets.token_hex(_NAME_BYTES)}-{store}", secrets.token_bytes(32)
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
                self._delete([name])
                raise
        return name, key

    def _read(self, name: str, key: bytes) -> bytes:
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

    def _delete(self, names: Iterable[str]) -> None:
        """Delete files that the store no longer has; the next :meth:`keep` retries those that fail now."""
        for name in names:
            with contextlib.suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)

    def kept(self, session: bytes) -> dict[str, bytes]:
        """Return the contents that a session kept last, by name. Raises WireFormatError, DataError."""
        with self._transaction() as change:
            found = change.find("kind = 'kept' AND session = ?", session)
            kept = {place.name: content for place, _, content in found}
            files = _files(change, "kind = 'file' AND session = ?", session)
            return kept | {name: self._read(file, key) for name, file, key in files}

    def keep(
        self,
        session: bytes,
        contents: Mapping[str, bytes],
        *,
        since: tuple[int, int],
        round_number: int = 0,
        update: bytes | None = None,
        repeats: bool = False,
    ) -> None:
        """Keep contents by name, in place of earlier ones.

        Parameters
        ----------
        since : the store's :attr:`position` when the contents that these derive from were read.
        round_number : the round of the contents.
        update : digest, 32 bytes, of the update that was trained in this round; None if none was.
        repeats : whether another round, of this session or another one, may have had the same update.

        Raises PolicyError if another process of this node kept something since then, and for an update that
        another round has had, unless ``repeats`` is set: the difference of two sums could be that update.
        Raises DataError for a disk that is full or fails, CapacityError for a content of 2 GiB. None of these
        keeps anything.
        """
        epoch, rows = since
        with self._transaction() as change:
            moved = Place("moved", session)
            if change.epoch != epoch or change.number < rows or change.number_at(moved) > rows:
                raise PolicyError(
                    "another process of this node has kept newer contents since this one began: send the "
                    "message again"
                )
            if update is not None:
                _note_update(change, session, round_number, update, repeats=repeats)
            before = {file for _, file, _ in _files(change, "kind = 'file'")}
            own_name = change.keys.mac("kept files")[:8].hex()
            with contextlib.suppress(OSError):
                if not self._folder.is_symlink():
                    # Files of processes that ended before they committed: nobody has their keys any more.
                    names = {path.name for path in self._folder.iterdir()}
                    self._delete(name for name in names - before if re.fullmatch(_NAME % own_name, name))
            written: list[str] = []
            try:
                for name, content in contents.items():
                    kinds, kept = ("kept", "file"), content
                    if len(content) > LONGEST_IN_TABLE_BYTES:
                        file, key = self._written(content, own_name)
                        written.append(file)
                        kinds, kept = ("file", "kept"), encoded((file, key))
                    own, other = (Place(kind, session, name=name) for kind in kinds)
                    change.put(own, kept)
                    change.delete(AT_PLACE, *other)
            except BaseException:
                # Not if the commit fails, since it may turn out to be done.
                self._delete(written)
                raise
            change.put(moved, b"")
            replaced = before - {file for _, file, _ in _files(change, "kind = 'file'")}
        self._delete(replaced)


def _files(change: Transaction, condition: str, *values: bytes) -> Iterator[tuple[str, str, bytes]]:
    """Yield the name of each content that is a file, the file's name, and its key."""
    for place, _, content in change.find(condition, *values):
        yield place.name, *decoded(content, tuple[str, bytes])


def _note_update(
    change: Transaction, session: bytes, round_number: int, update: bytes, *, repeats: bool
) -> None:
    """Record the round of an update, once. Raises PolicyError if another round has had the update."""
    place, own = Place("update", name=change.keys.mac("update", update).hex()), (session, round_number)
    found = change.get(place)
    places = [] if found is None else decoded(found, list[tuple[bytes, int]])
    if not repeats and any(one != own for one in places):
        raise PolicyError(UPDATE_OF_ANOTHER_ROUND)
    if own not in places:
        change.put(place, encoded([*places, own]))
