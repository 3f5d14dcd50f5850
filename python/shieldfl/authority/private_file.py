"""Private files, written whole or not at all; and a store's lock, long contents and errors of its disk."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import sqlite3
import stat
import weakref
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from shieldfl.build_info import cryptographic
from shieldfl.errors import (
    CapacityError,
    DataError,
    ParameterError,
    PolicyError,
    ShieldError,
    WireFormatError,
)
from shieldfl.stateful import Uncopied

# Ends of messages that begin with "the store" and its path, also of those about SQLite's errors.
_CANNOT_BE_OPENED = "cannot be opened: check that it exists, and its folder's permissions"
_IS_HELD = (
    "is held by another process, or opened twice in this one: a store has one writer. Close it there first"
)

DAMAGED = WireFormatError, "is damaged, or no store at all. Restore the newest backup with restored=True"
_PROBLEMS: dict[int, tuple[type[ShieldError], str]] = {
    sqlite3.SQLITE_BUSY: (PolicyError, _IS_HELD),
    sqlite3.SQLITE_CANTOPEN: (DataError, _CANNOT_BE_OPENED),
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
    sqlite3.SQLITE_FULL: (DataError, "has no room left on its disk: free some, then try again"),
    sqlite3.SQLITE_IOERR: (DataError, "could not be read or written: mend the disk, then try again"),
    sqlite3.SQLITE_READONLY: (DataError, "cannot be written: make file, folder and disk writable"),
    sqlite3.SQLITE_TOOBIG: (CapacityError, "cannot hold so long a content: divide the model into more parts"),
}
NO_PATH = "the store's path has characters that no path can have"


def sync_folder(path: Path) -> None:
    """Make sure that a new or replaced file is found in its folder after a power failure.

    Raises OSError.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class HeldFile(Uncopied):
    """Locks a file against other processes and a second holder here, and checks that it is in its place.

    SQLite takes POSIX locks, which a process loses when it closes the file anywhere, for example after
    copying it. This lock belongs to its own descriptor. Hold it before SQLite opens the file, and until
    SQLite has closed it.
    """

    _why_uncopied = "holds a lock and is neither copied nor pickled"

    def __init__(self, path: Path, nothing: str) -> None:
        self._path = path.absolute()
        self._nothing = nothing
        try:
            # A pipe would be waited for.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise DataError(f"the store {path} {_CANNOT_BE_OPENED}. {nothing}") from error
        except ValueError as error:
            raise ParameterError(NO_PATH) from error
        # Also where it is dropped without being closed.
        self.close = weakref.finalize(self, _close, descriptor, os.getpid())
        self._descriptor = descriptor
        _HELD.add(self)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.check_in_place()
        except BaseException as error:
            self.close()
            if isinstance(error, BlockingIOError):
                raise PolicyError(f"the store {self._path} {_IS_HELD}. {nothing}") from error
            if isinstance(error, OSError) and not isinstance(error, DataError):
                raise DataError(
                    f"the store {self._path} cannot be locked: put it on a disk of this machine. {nothing}"
                ) from error
            raise

    def check_in_place(self) -> None:
        """Raise PolicyError if the file was moved, deleted or replaced, or has several names.

        Raises DataError if it is no regular file, or cannot be checked.
        """
        own = os.fstat(self._descriptor)
        if not stat.S_ISREG(own.st_mode):
            raise DataError(f"the store {self._path} is no regular file. {self._nothing}")
        # The journal of an interrupted transaction lies beside one name, and is not found by another.
        if own.st_nlink > 1:
            raise PolicyError(
                f"the store {self._path} has a second name, a hard link: delete that one. {self._nothing}"
            )
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            there = None
        except OSError as error:
            raise DataError(
                f"the store {self._path} cannot be checked: mend the disk, then try again. {self._nothing}"
            ) from error
        if there is None or (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino):
            raise PolicyError(
                f"the store {self._path} was moved, deleted or replaced while it was held here: close it, "
                f"and put the newest file back, or open a backup with restored=True. {self._nothing}"
            )


def _close(descriptor: int, process: int) -> None:
    with contextlib.suppress(OSError):
        # A forked child shares the lock until it closes its descriptor; it must not unlock its parent's.
        if os.getpid() == process:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


_HELD: weakref.WeakSet[HeldFile] = weakref.WeakSet()


def _close_in_child() -> None:
    # A lock lasts while any process has the descriptor: a forked child would otherwise keep the file locked
    # after this process has ended.
    for held in list(_HELD):
        held.close()


os.register_at_fork(after_in_child=_close_in_child)


def write_private_file(path: Path, *pieces: bytes) -> None:
    """Write a file with mode 0600, or replace it in one step; it is there after a power failure."""
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def drawn_key(path: Path, length: int) -> bytes:
    """Return the random bytes of a file, which the first call draws and writes.

    If several processes draw, the first one's bytes count. Raises DataError for a file of another length,
    OSError.
    """
    if not path.exists():
        drawn = path.with_name(f"{path.name}.{secrets.token_hex(4)}.drawn")
        write_private_file(drawn, secrets.token_bytes(length))
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(drawn)
        drawn.unlink()
    key = path.read_bytes()
    if len(key) != length:
        raise DataError(f"{path} does not hold a key of {length} bytes: restore the folder")
    return key


def remove_store_file(path: Path) -> None:
    """Delete the file of a store that nobody holds, and SQLite's journal beside it."""
    path.unlink(missing_ok=True)
    path.with_name(f"{path.name}-journal").unlink(missing_ok=True)


@contextlib.contextmanager
def disk_errors_as(text: str) -> Iterator[None]:
    """Raise DataError with this text for errors of the disk; a DataError passes unchanged."""
    try:
        yield
    except DataError:
        raise
    except OSError as error:
        raise DataError(text) from error


@contextlib.contextmanager
def sqlite_errors_in_our_words(path: Path, nothing: str) -> Iterator[None]:
    """Turn SQLite's errors into the package's, with SQLite's as the cause.

    ``nothing`` is a sentence about what has not happened.
    """
    try:
        yield
    except sqlite3.Error as error:
        # An error without a code is text that Python cannot decode, or else a misuse.
        own = sqlite3.SQLITE_CORRUPT if isinstance(error, sqlite3.OperationalError) else sqlite3.SQLITE_MISUSE
        misused = ShieldError, "got a request that SQLite refused: see the error before this"
        kind, words = _PROBLEMS.get(getattr(error, "sqlite_errorcode", own) & 0xFF, misused)
        raise kind(f"the store {path} {words}. {nothing}") from error


LONGEST_SEALED_BYTES = 2**31 - 1
"""Largest number of bytes that AES-GCM of the package ``cryptography`` takes in one call."""

TOO_LONG_TO_SEAL = "a content of 2 GiB or more cannot be sealed: divide the model into parts"

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
        path = store.resolve() if store.is_absolute() else store  # as of a store in memory, which keeps none
        self._folder = path.with_name(f"{path.name}-kept")
        self._own_name, self._nothing = own_name, nothing
        self._may_have_files = True

    def keep(self, content: bytes) -> Kept:
        """Return what the record of a content holds; a long one is in a file by then, on the disk.

        If it raises an error, there is no file.
        """
        if len(content) <= LONGEST_IN_TABLE_BYTES:
            return Kept(content)
        if len(content) > LONGEST_SEALED_BYTES:
            raise CapacityError(f"{TOO_LONG_TO_SEAL}. {self._nothing}")
        self._may_have_files = True
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
        return Kept(b"", name, key)

    def content(self, kept: Kept) -> bytes:
        """Return a kept content. Raises WireFormatError, DataError."""
        if not kept.file:
            return kept.content
        from cryptography.exceptions import InvalidTag

        path = self._folder / kept.file
        try:
            return bytes(_cipher(kept.key).decrypt(_NONCE, path.read_bytes(), kept.file.encode()))
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
        """Delete files that the store no longer has; :meth:`delete_others` retries those that fail."""
        for name in names:
            with contextlib.suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)

    def delete_others(self, names: Collection[str]) -> None:
        """Delete all files but these: replaced ones, and those of processes that ended before a commit.

        It looks for them after an opening, and until it finds no files.
        """
        if not self._may_have_files:
            return
        with contextlib.suppress(OSError):
            if not self._folder.is_symlink():
                there = [path.name for path in self._folder.iterdir()] if self._folder.exists() else []
                own = [name for name in there if re.fullmatch(_NAME % self._own_name, name)]
                self.delete(name for name in own if name not in names)
                self._may_have_files = bool(own)
