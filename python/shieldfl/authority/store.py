"""What every store is: one SQLite file that one process holds, verified whenever it is opened.

What is asked for is written, and on the disk, before it leaves: neither a crash nor a second request makes another one.
"""

from __future__ import annotations

import abc
import contextlib
import hashlib
import sqlite3
import threading
import weakref
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from shieldfl.authority.store_file import MEMORY, StoreFile, StoreLayout, create_content, create_file
from shieldfl.authority.store_journal import (
    KEY_BYTES,
    OWNER_BYTES,
    Journal,
    Position,
    StoreKeys,
    as_bytes,
    as_number,
)
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.stateful import Uncopied


class Store(Uncopied, abc.ABC):
    """A memory in a file, or in that of the process. Thread-safe; one process at a time.

    Every operation is one transaction; what raises an error has given nothing, and changed nothing. Where the disk
    fails in the commit itself, it may turn out to be done when the file is read again: the same request then gets what
    was written, and another one is refused.

    **An old copy of the whole file is a valid store.** What was given after it was made could be given again, and be
    something else. Nothing in a file can tell; who knows how far the store had come passes ``at_least``, from wherever
    :attr:`position` was noted. A backup is opened with ``restored=True``, which ends all sessions, or not at all; a
    snapshot of a machine is such a backup. Make one while the store is closed, and where it is put into place, delete
    what ends in ``-journal`` beside it: that is another file's.
    """

    _layout: ClassVar[StoreLayout]

    def __init__(
        self,
        path: str | PathLike[str],
        key: bytes,
        owner_id: bytes,
        *,
        at_least: tuple[int, int] = (0, 0),
        restored: bool = False,
        _content: bytes = b"",
    ) -> None:
        """Open what was created, and verify all of it.

        Parameters
        ----------
        path : of the file.
        key : 32 random bytes, those that it was created with.
        owner_id : whose it is: 32 bytes, those that it was created with.
        at_least : a :attr:`position` that the store is known to have reached. An older file is refused.
        restored : the file is a backup. Begins an epoch above both the file's and that of ``at_least``: sessions of
            earlier ones are refused from now on, and what was secret of them is deleted. Give the newest epoch that
            anybody knows: a backup that is restored twice without it begins one epoch twice.

        Raises KeyMismatchError for another key or owner; WireFormatError for a file that was damaged or altered;
        PolicyError for one that is older than ``at_least``, or that another process holds; DataError for a disk that
        fails, or cannot be written; ParameterError.
        """
        self._key = as_bytes(key, KEY_BYTES, "a store's key")
        self._owner_id = as_bytes(owner_id, OWNER_BYTES, "a store's owner")
        self._keys: StoreKeys | None = None
        self._restored = restored
        if not isinstance(at_least, tuple) or len(at_least) != 2:
            raise ParameterError("at_least must be a position: an epoch and a number of rows")
        self._position = Position(*(as_number(number, "a number of at_least") for number in at_least))
        self._position_lock = threading.Lock()
        self._is_in_memory = path is MEMORY
        # By a weak reference: dropped, it gives its file up at once, and not with the next collection of cycles.
        live = weakref.ref(self)

        def check(connection: sqlite3.Connection) -> None:
            store = live()
            assert store is not None, "a file is its store's alone"
            store._check(connection)

        path_of_file = path if path is MEMORY else Path(path)
        self._file = StoreFile(path_of_file, self._layout, check, content=_content)
        self._restored = False

    @classmethod
    def _create(cls, path: str | PathLike[str], key: bytes, owner_id: bytes) -> None:
        keys = StoreKeys(key, as_bytes(owner_id, OWNER_BYTES, "a store's owner"))
        create_file(Path(path), cls._layout, lambda connection: Journal.begin(connection, keys))

    @classmethod
    def _created_content(cls, key: bytes, owner_id: bytes) -> bytes:
        keys = StoreKeys(key, as_bytes(owner_id, OWNER_BYTES, "a store's owner"))
        return create_content(cls._layout, lambda connection: Journal.begin(connection, keys))

    def serialised(self) -> bytes:
        """Return all of a store in memory; its secrets are sealed under its key."""
        return self._file.serialised()

    @abc.abstractmethod
    def _check_tables(self, journal: Journal) -> None:
        """Verify every row of the journal, and all tables against it. Raises WireFormatError that names the row."""

    @abc.abstractmethod
    def _forget(self, connection: sqlite3.Connection) -> None:
        """Delete what was secret of sessions that have ended, since a backup was restored."""

    def _check(self, connection: sqlite3.Connection) -> None:
        """Verify a file that was just opened: the first time, or again after an error of the disk."""
        self._keys = Journal.keys_of(connection, self._key, self._owner_id)
        journal = Journal(connection, self._keys)
        self._check_tables(journal)
        if self._restored:
            epoch = as_number(max(journal.epoch, self._position.epoch) + 1, "the epoch after this")
            journal.append("restore", round_number=epoch)
            self._forget(connection)
        elif journal.position < self._position:
            raise PolicyError(
                f"this is an old copy of the store: it ends at row {journal.number} of epoch {journal.epoch}, and is "
                f"known to have reached row {self._position.rows} of epoch {self._position.epoch}. Open the newest "
                "file, or, if that is lost, this one with restored=True"
            )
        if not self._is_in_memory:
            journal.count_opening()
        self._position = journal.position

    @property
    def is_in_memory(self) -> bool:
        """Whether it ends with this process."""
        return self._is_in_memory

    @property
    def position(self) -> Position:
        """How far the store has come; noted elsewhere, such as in signed answers, it tells old copies."""
        return self._position

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Journal]:
        with self._file.transaction() as connection:
            assert self._keys is not None
            journal = Journal(connection, self._keys)
            yield journal
        with self._position_lock:
            self._position = max(self._position, journal.position)

    def close(self) -> None:
        """Give the file up: nothing more comes of it here, and another process can open it."""
        self._file.close()
        self._keys, self._key = None, b""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class StoreOfClient(Store):
    """What is told from a key authority's, and from one of another kind, when it is opened."""

    _kind: ClassVar[bytes]

    def __init__(
        self,
        path: str | PathLike[str],
        key: bytes,
        *,
        at_least: tuple[int, int] = (0, 0),
        restored: bool = False,
    ) -> None:
        """Open what :meth:`create` made, and verify all of it.

        Parameters
        ----------
        path : of the file.
        key : 32 random bytes, those that it was created with.
        at_least : a :attr:`position` that the store is known to have reached. An older file is refused.
        restored : the file is a backup: every session has ended for this client, which takes part in new ones.

        Raises as :class:`~shieldfl.authority.store.Store` does.
        """
        super().__init__(path, key, self._owner(), at_least=at_least, restored=restored)

    @classmethod
    def create(cls, path: str | PathLike[str], key: bytes) -> Self:
        """Make an empty store, file mode 0600, and open it; ``key`` is 32 random bytes, kept elsewhere.

        Raises PolicyError where there is a file already; DataError; OSError for a folder that cannot be written;
        ParameterError.
        """
        cls._create(path, key, cls._owner())
        return cls(path, key)

    @classmethod
    def _owner(cls) -> bytes:
        return hashlib.sha256(cls._kind).digest()
