"""A file that is one process's for as long as it holds it, and whose place in its folder survives a power failure."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import weakref
from pathlib import Path

from shieldfl.errors import DataError, ParameterError, PolicyError
from shieldfl.stateful import Uncopied

__all__ = ["CANNOT_BE_OPENED", "IS_HELD", "NO_PATH", "HeldFile", "sync_folder"]

# What follows "the store" and its path, whether this or SQLite finds it.
CANNOT_BE_OPENED = "cannot be opened: check that it exists, and its folder's permissions"
IS_HELD = (
    "is held by another process, or opened twice in this one: a store has one writer. End the other first"
)

NO_PATH = "the path of a store has characters that none has"


def sync_folder(path: Path) -> None:
    """See to it that a file which was made, or put into place, is found there after a power failure. Raises OSError."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


class HeldFile(Uncopied):
    """Keeps other processes, and a second holder in this one, from a file, and tells whether it is still in its place.

    SQLite's own locks are POSIX's, which a process loses when it closes the file anywhere: by copying it, say. This one
    goes with a descriptor of its own. Hold it before SQLite opens the file, and longer.

    Parameters
    ----------
    path : of a store's file.
    nothing : what has not happened where it is refused, in a sentence.

    Raises PolicyError where it is held, or has several names; DataError where it cannot be opened or locked, or is no
    file; ParameterError for a path that none has.
    """

    _why_uncopied = "holds a lock and is neither copied nor pickled"

    def __init__(self, path: Path, nothing: str) -> None:
        self._path = path.absolute()
        self._nothing = nothing
        try:
            # A pipe would be waited for.
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise DataError(f"the store {path} {CANNOT_BE_OPENED}. {nothing}") from error
        except ValueError as error:
            raise ParameterError(NO_PATH) from error
        # Also where it is dropped without being closed.
        self._close = weakref.finalize(self, _close, descriptor, os.getpid())
        self._descriptor = descriptor
        _HELD.add(self)
        try:
            self._lock()
            self.check_in_place()
        except BaseException:
            self.close()
            raise

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise PolicyError(f"the store {self._path} {IS_HELD}. {self._nothing}") from error
        except OSError as error:
            raise DataError(
                f"the store {self._path} cannot be locked: put it on a disk of this machine. {self._nothing}"
            ) from error

    def check_in_place(self) -> None:
        """Raise PolicyError where another file is in its place, or none: what is written would be found by nobody.

        And for one with several names; DataError for what is no file.
        """
        own = os.fstat(self._descriptor)
        if not stat.S_ISREG(own.st_mode):
            raise DataError(f"the store {self._path} is no file. {self._nothing}")
        # What is kept of a transaction that was cut off lies beside one name, and is not found by another.
        if own.st_nlink > 1:
            raise PolicyError(
                f"the store {self._path} has another name, a hard link: delete that one. {self._nothing}"
            )
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            there = None
        except OSError as error:
            raise DataError(
                f"the store {self._path} cannot be looked for: mend the disk, then try again. {self._nothing}"
            ) from error
        if there is None or (there.st_dev, there.st_ino) != (own.st_dev, own.st_ino):
            raise PolicyError(
                f"the store {self._path} was moved, deleted or replaced while it was held here: close it, and put the "
                f"newest file back, or open a backup with restored=True. {self._nothing}"
            )

    def close(self) -> None:
        """Let others have it."""
        self._close()


def _close(descriptor: int, process: int) -> None:
    with contextlib.suppress(OSError):
        # A child that was forked has the same lock, until it has closed its descriptor; it must not unlock this one's.
        if os.getpid() == process:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


_HELD: weakref.WeakSet[HeldFile] = weakref.WeakSet()


def _close_in_child() -> None:
    # A lock is held for as long as any process has the descriptor: else one that was forked would keep the file from
    # whoever goes on once this process has ended.
    for held in list(_HELD):
        held.close()


os.register_at_fork(after_in_child=_close_in_child)
