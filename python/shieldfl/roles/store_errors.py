"""What SQLite says of a store's file, in our words."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from shieldfl.errors import CapacityError, DataError, PolicyError, ShieldError, WireFormatError
from shieldfl.roles.held_file import CANNOT_BE_OPENED, IS_HELD

__all__ = ["damaged", "in_our_words"]

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
