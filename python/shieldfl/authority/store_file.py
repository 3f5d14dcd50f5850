"""A store's file: one SQLite database that one process holds, and what SQLite says of it, in our words."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from shieldfl.authority.private_file import CANNOT_BE_OPENED, IS_HELD, NO_PATH, HeldFile, sync_folder
from shieldfl.errors import (
    CapacityError,
    DataError,
    ParameterError,
    PolicyError,
    ShieldError,
    WireFormatError,
)
from shieldfl.stateful import Uncopied

_DAMAGED = (
    WireFormatError,
    "is damaged, or no store at all. Restore the newest backup with restored=True, or begin a new store and new "
    "sessions",
)
_PROBLEMS: dict[int, tuple[type[ShieldError], str]] = {
    sqlite3.SQLITE_BUSY: (PolicyError, IS_HELD),
    sqlite3.SQLITE_CANTOPEN: (DataError, CANNOT_BE_OPENED),
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_FULL: (DataError, "has no room left on its disk: free some, then try again"),
    sqlite3.SQLITE_IOERR: (DataError, "could not be read or written: mend the disk, then try again"),
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_READONLY: (
        DataError,
        "cannot be written: make file, folder and disk writable, then try again",
    ),
    sqlite3.SQLITE_TOOBIG: (CapacityError, "takes nothing that long: divide the model into more parts"),
}
_PROBLEMS[sqlite3.SQLITE_LOCKED] = _PROBLEMS[sqlite3.SQLITE_BUSY]
_PROBLEMS[sqlite3.SQLITE_PERM] = _PROBLEMS[sqlite3.SQLITE_CANTOPEN]


def damaged(path: Path, nothing: str) -> ShieldError:
    """Return the error for a file that is no store, or no longer one. ``nothing`` says what has not happened."""
    kind, words = _DAMAGED
    return kind(f"the store {path} {words}. {nothing}")


@contextlib.contextmanager
def in_our_words(path: Path, nothing: str, taken: str) -> Iterator[None]:
    """Raise the package's error for SQLite's, which stays its cause.

    Parameters
    ----------
    path : of the store's file.
    nothing : what has not happened, in a sentence.
    taken : what the file has already where a row of a table is refused, and what to do.
    """
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code is None and isinstance(error, sqlite3.OperationalError):
            code = sqlite3.SQLITE_CORRUPT  # text that is none, which SQLite has read and Python has not
        elif code is None:
            code = sqlite3.SQLITE_MISUSE
        known = _PROBLEMS | {sqlite3.SQLITE_CONSTRAINT: (PolicyError, taken)}
        kind, words = known.get(
            code & 0xFF, (ShieldError, "was not understood by SQLite: see the error before this")
        )
        raise kind(f"the store {path} {words}. {nothing}") from error


_JOURNAL = """
CREATE TABLE head (authority_id BLOB, salt BLOB, proof BLOB, epoch INTEGER, rows INTEGER, last_mac BLOB,
    openings INTEGER, mac BLOB);
CREATE TABLE journal (number INTEGER PRIMARY KEY, kind TEXT, session BLOB, client INTEGER, round INTEGER, purpose TEXT,
    digest BLOB, token BLOB, mac BLOB);
CREATE INDEX journal_rounds ON journal (session, kind, round);
"""


class StoreLayout(NamedTuple):
    """What tells one kind of store from another."""

    tables: str
    """SQL that makes its tables beside the journal's, each statement with a semicolon at the end of its line."""
    nothing: str
    """What has not happened where a transaction failed, in a sentence."""
    taken: str
    """What the file has already where a row of a table is refused, and what to do."""


_PRAGMAS = (
    # Held from the first lock to the end of the process, which a second writer then cannot enter.
    "locking_mode=EXCLUSIVE",
    # What is kept from a transaction that was cut off is cut to nothing by the commit: in an exclusively held file the
    # default would overwrite its first bytes alone, and leave old pages behind them.
    "journal_mode=TRUNCATE",
    "synchronous=EXTRA",
    "fullfsync=ON",
    "secure_delete=ON",
    "temp_store=MEMORY",
    "trusted_schema=OFF",
    "cell_size_check=ON",
    "mmap_size=0",
)

_ASKED_WITHIN = "the store is asked by what it has called to compute: ask before or after"

MEMORY = Path(":memory:")
"""In place of a path, for a store that ends with its process."""


def _connected(path: Path) -> sqlite3.Connection:
    # Not for the time of a lock: who holds this file holds it for good.
    connection = sqlite3.connect(
        str(path) if path is MEMORY else f"file:{quote(str(path.absolute()))}?mode=rw",
        uri=True,
        timeout=0.0,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def _is_whole(content: bytes) -> bool:
    """Whether a database has as many pages as it says: SQLite does not miss one that is not in use."""
    pages, bytes_of_page = int.from_bytes(content[28:32], "big"), int.from_bytes(content[16:18], "big")
    return len(content) == pages * bytes_of_page > 0


def _schema_of(connection: sqlite3.Connection) -> list[tuple[str, str]]:
    rows = connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
    return rows.fetchall()


def _schema_by(layout: StoreLayout) -> list[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(_JOURNAL + layout.tables)
        return _schema_of(connection)


def _filled(
    connection: sqlite3.Connection, layout: StoreLayout, fill: Callable[[sqlite3.Connection], None]
) -> None:
    connection.execute("BEGIN EXCLUSIVE")
    for statement in (_JOURNAL + layout.tables).split(";\n")[:-1]:
        connection.execute(statement)
    fill(connection)
    connection.execute("COMMIT")


def create_content(layout: StoreLayout, fill: Callable[[sqlite3.Connection], None]) -> bytes:
    """Return what a store in memory begins with."""
    with (
        in_our_words(MEMORY, layout.nothing, layout.taken),
        contextlib.closing(_connected(MEMORY)) as connection,
    ):
        _filled(connection, layout, fill)
        return bytes(connection.serialize())


def create_file(path: Path, layout: StoreLayout, fill: Callable[[sqlite3.Connection], None]) -> None:
    """Make a store's file, mode 0600, with what ``fill`` writes. Raises PolicyError, DataError, OSError."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise PolicyError(
            f"{path} exists: open it, or take another path. A memory is not begun over another"
        ) from None
    except ValueError as error:
        raise ParameterError(NO_PATH) from error
    try:
        with (
            in_our_words(path, layout.nothing, layout.taken),
            contextlib.closing(_connected(path)) as connection,
        ):
            _filled(connection, layout, fill)
        # SQLite sees to its own files' places in the folder; this one was there before it came.
        sync_folder(path)
    except BaseException:
        remove_file(path)
        raise


def remove_file(path: Path) -> None:
    """Delete a store that nobody holds, and what SQLite keeps beside it."""
    path.unlink(missing_ok=True)
    path.with_name(f"{path.name}-journal").unlink(missing_ok=True)


class StoreFile(Uncopied):
    """Keeps one file open, and locked, for one process. Thread-safe: a transaction waits for the one before.

    After an error of the disk the file is closed, and opened again, with all checks, by the next transaction: what a
    commit that failed has left on the disk is for the disk to say, not for memory.

    Parameters
    ----------
    path : of what :func:`create_file` made; on a disk of this machine: locks of network disks cannot be relied on. Or
        :data:`MEMORY`.
    layout : its tables, and words.
    check : gets the connection in a transaction whenever the file was opened, and has to write something.
    content : of a store in memory: what :func:`create_content` or :meth:`serialised` gave. It has no other copy, so
        what an error of SQLite has closed stays closed.
    """

    _why_uncopied = (
        "holds the one connection to its file and is neither copied nor pickled: open it where it is used"
    )

    def __init__(
        self,
        path: Path,
        layout: StoreLayout,
        check: Callable[[sqlite3.Connection], None],
        content: bytes = b"",
    ) -> None:
        # Whatever folder the process goes to: after an error the same file is opened again.
        self._path = path if path is MEMORY else path.absolute()
        self._layout = layout
        self._content = content
        self._check = check
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._closed = False
        self._connection: sqlite3.Connection | None = None
        self._file: HeldFile | None = None
        if path is not MEMORY:
            self._file = HeldFile(self._path, layout.nothing)
        try:
            with self._in_our_words():
                self._connection = self._opened()
        except BaseException:
            self._give_up()
            raise

    @property
    def path(self) -> Path:
        """Where it is: an absolute path, links in it as they are."""
        return self._path

    def __del__(self) -> None:
        # The connection is in a cycle of Python's making, and would hold its file until the next collection of such.
        if self._process == os.getpid():
            self._give_up()

    def _in_our_words(self) -> contextlib.AbstractContextManager[None]:
        return in_our_words(self._path, self._layout.nothing, self._layout.taken)

    def _opened(self) -> sqlite3.Connection:
        try:
            return self._checked()
        except (UnicodeDecodeError, sqlite3.DataError) as error:
            # A length beyond SQLite's limit, or a name that is no text: nothing of what a store begins with has one.
            raise damaged(self._path, self._layout.nothing) from error

    def _checked(self) -> sqlite3.Connection:
        connection = _connected(self._path)
        try:
            if self._path is MEMORY:
                if not _is_whole(self._content):
                    raise WireFormatError("the content of a store in memory was cut off")
                connection.deserialize(self._content)
                self._content = b""
            connection.execute("BEGIN EXCLUSIVE")
            if _schema_of(connection) != _schema_by(self._layout):
                raise WireFormatError(
                    f"{self._path} has not the tables of a store: it is of another version, was altered, or was never "
                    "finished. If creating it was cut off, nothing came of it: delete it and create it again"
                )
            # Also whether the order of tables and indexes is right, by which rows are looked for.
            (finding,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
            if finding != "ok":
                raise damaged(self._path, self._layout.nothing)
            self._check(connection)
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
        return connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Run in one transaction what stands in ``with``; it is on the disk afterwards, whole, or else nothing is.

        But for a disk that fails in the commit: what was written may be found there when the file is opened again.
        Raises, beside what ``with`` raises, PolicyError for a second process and for a transaction in a transaction;
        DataError for a disk that is full, read-only or broken; WireFormatError for a file that is damaged.
        """
        self._check_process()
        with self._lock, self._in_our_words():
            connection = self._held()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                self._check_in_place()
                connection.execute("COMMIT")
            except BaseException as error:
                # But for what Python refused, before SQLite heard of it.
                of_sqlite = isinstance(error, sqlite3.Error) and not isinstance(
                    error, sqlite3.ProgrammingError
                )
                if of_sqlite or not self._rolled_back(connection):
                    self._let_go()
                raise

    def _check_process(self) -> None:
        # Before the lock is taken: in a child it may be that of a thread which the child does not have.
        if os.getpid() != self._process:
            raise PolicyError(
                f"the store {self._path} was opened by the process that this one was forked from: a store has "
                "one writer. Close it before the fork and open it after, in one of both"
            )

    def _check_in_place(self) -> None:
        if self._file is not None:
            self._file.check_in_place()

    def _held(self) -> sqlite3.Connection:
        if self._closed:
            raise PolicyError(f"the store {self._path} was closed: open it again")
        self._check_in_place()
        if self._connection is None:
            self._closed = self._path is MEMORY
            if self._closed:
                raise PolicyError(
                    "the store in memory was lost by an error: begin another one, and new sessions"
                )
            self._connection = self._opened()
        if self._connection.in_transaction:
            raise PolicyError(_ASKED_WITHIN)
        return self._connection

    def _rolled_back(self, connection: sqlite3.Connection) -> bool:
        try:
            connection.rollback()
        except sqlite3.Error:
            return False
        return True

    def serialised(self) -> bytes:
        """Return what a store in memory holds, for another one to begin with."""
        self._check_process()
        with self._lock, self._in_our_words():
            return bytes(self._held().serialize())

    def _let_go(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None

    def close(self) -> None:
        """Give the file up, for other processes to open. Raises PolicyError within a transaction."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._connection is not None and self._connection.in_transaction:
                raise PolicyError(_ASKED_WITHIN)
            self._closed = True
            self._give_up()

    def _give_up(self) -> None:
        self._let_go()
        if self._file is not None:
            self._file.close()
