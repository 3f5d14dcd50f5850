"""A node's memory, whose steps each run in a process of their own: sealed contents, and what has left."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import secrets
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from shieldfl.authority.private_file import sync_folder
from shieldfl.authority.role_state import LONGEST_SEALED_BYTES, TOO_LONG_TO_SEAL
from shieldfl.authority.store import StoreOfClient
from shieldfl.authority.store_file import StoreLayout
from shieldfl.authority.store_journal import (
    DIGEST_BYTES,
    SESSION_BYTES,
    Journal,
    Position,
    Row,
    as_bytes,
    as_number,
    checked_purpose,
    refuse_altered,
)
from shieldfl.errors import CapacityError, DataError, PolicyError, WireFormatError

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


class KeptMessage(NamedTuple):
    """Which message it is: a round's first one, or the reply to a phase. A journal has a row of each that has left."""

    session: bytes
    round: int
    phase: str | None = None
    """None for the round's first message."""

    @property
    def kind(self) -> str:
        """Of the journal's row."""
        return "begin" if self.phase is None else "reply"

    def checked(self) -> KeptMessage:
        """Return it as the journal takes it. Raises ParameterError."""
        phase = None if self.phase is None else checked_purpose(self.phase)
        session = as_bytes(self.session, SESSION_BYTES, "session")
        return KeptMessage(session, as_number(self.round, "round_number"), phase)

    def __str__(self) -> str:
        if self.phase is None:
            return (
                f"round {self.round} was begun with another first message: begin it as it was, or a later one"
            )
        return f"phase {self.phase!r} of round {self.round} came to another reply: ask with the message that had that"


def row_of_message(journal: Journal, message: KeptMessage) -> Row | None:
    """Return the row of a message; None where it was not kept."""
    select = "SELECT * FROM journal WHERE session = ? AND kind = ? AND round = ? AND purpose IS ?"
    place = (message.session, message.kind, message.round, message.phase)
    found = journal.connection.execute(select, place).fetchone()
    return None if found is None else Row(*found)


def keep_message(journal: Journal, message: KeptMessage, digest: bytes) -> None:
    """Write which message it is, unless that was written. Raises PolicyError where it was another one."""
    as_bytes(digest, DIGEST_BYTES, "digest")
    row = row_of_message(journal, message)
    if row is None:
        session, round_number, phase = message
        journal.append(message.kind, session, round_number=round_number, purpose=phase, digest=digest)
    elif row.digest != digest:
        raise PolicyError(str(message))


def check_replies_are_known(journal: Journal, message: KeptMessage, known: int) -> None:
    """Raise PolicyError unless all replies are known that come before a message.

    ``known`` is the number of a row: whoever asks has all replies up to that in its state.
    """
    # By the number alone (a plus keeps the others from choosing an index): rows that are not known are few.
    select = """SELECT number, round FROM journal
        WHERE +session = ? AND +kind = 'reply' AND number > ? ORDER BY number"""
    unknown = journal.connection.execute(select, (message.session, known)).fetchall()
    if message.phase is None:
        # To be asked for again, they need their own round.
        waits = any(round_number < message.round for _, round_number in unknown)
    else:
        own = row_of_message(journal, message)
        waits = bool(unknown) and (own is None or own.number > unknown[0][0])
    if waits:
        raise PolicyError(
            f"the store has {len(unknown)} reply(s) that did not come into the state that this authority goes on from: "
            "pass the same requests on again, in their order, or restore the newest state"
        )


UPDATE_OF_ANOTHER_ROUND = (
    "this update was trained in another round or run, too: in two sums it could be told from the others'. Train on, or "
    "from another seed"
)
"""Why such an update is refused."""

LONGEST_IN_TABLE_BYTES = 65_536
"""What is longer is a file: pages of a table are written three times, to the journal, in place, and over with zeros."""

_LAYOUT = StoreLayout(
    tables="""
CREATE TABLE kept (session BLOB, name TEXT, number INTEGER, file TEXT, sealed BLOB,
    PRIMARY KEY (session, name)) WITHOUT ROWID;
""",
    nothing="Nothing was kept, and no reply may leave",
    taken="was written already",
)


class StepStore(StoreOfClient):
    """Named contents of sessions, each sealed; and of which updates a session has sent something, and in which round.

    A key ratchet is part of a role's state, and the state and what leaves are written in one transaction. From an old
    copy a round's second frame could be made: see :class:`~shieldfl.authority.store.Store`. Long contents are files of
    the folder ``PATH-kept``, under names that are this store's: back both up together. What was replaced is deleted by
    :meth:`keep` alone, so that an old copy that is opened beside the folder, and refused, has deleted nothing.
    """

    _layout = _LAYOUT
    _kind = b"shieldfl step store 1\0"
    _why_uncopied = "holds a client's secrets and is neither copied nor pickled: open it where it is used"

    @functools.cached_property
    def _files(self) -> KeptFiles:
        # Beside the file itself, by whichever link it was opened.
        path = self._file.path.resolve()
        assert self._keys is not None, "the store is open"
        own = self._keys.mac("kept files")[:8].hex()
        return KeptFiles(path.with_name(f"{path.name}-kept"), own, _LAYOUT.nothing)

    def _forget(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM kept")

    def _check_tables(self, journal: Journal) -> None:
        written: dict[tuple[bytes, str], Row] = {}
        for row in journal.rows():
            match row.kind, row.session, row.purpose:
                case "keep", bytes(session), str(name):
                    written[session, name] = row
                case "update", bytes(), None:
                    pass
                case "restore", None, None:
                    written.clear()
                case _:
                    refuse_altered(
                        f"row {row.number} of the journal is of a kind that this version does not know"
                    )
        select = "SELECT session, name, number FROM kept"
        for session, name, number in journal.connection.execute(select).fetchall():
            found = written.pop((session, name), None)
            if found is None or found.number != number:
                refuse_altered(f"what row {number} of the journal has kept is not what was written")
        for left in written.values():
            refuse_altered(f"what row {left.number} of the journal wrote is missing")

    def kept(self, session: bytes) -> dict[str, bytes]:
        """Return what was kept last of a session, by its names. Raises WireFormatError, DataError."""
        with self._transaction() as journal:
            select = "SELECT name, number, file, sealed FROM kept WHERE session = ?"
            found = {}
            for name, number, file, sealed in journal.connection.execute(select, (session,)).fetchall():
                secret = journal.keys.unseal(journal.row(number), sealed, session, name, file)
                found[name] = secret if file is None else self._files.read(file, secret)
            return found

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
        """Keep contents by their names, in the place of what there was.

        Parameters
        ----------
        session : its id.
        contents : secret or not.
        since : the :attr:`position` at which was read what these come of.
        round_number : that they belong to.
        update : of what was trained in this round, a digest of 32 bytes; None where nothing was.
        repeats : whether another round, of this session or another one, may have had the same update.

        Raises PolicyError where something was kept since then, by another process of this node, and for an update that
        another round has had, unless it ``repeats``: of two sums, of which one lacks this client, the difference would
        be that update; DataError for a disk that is full or fails; CapacityError for a content of 2 GiB. Then nothing
        is kept.
        """
        with self._transaction() as journal:
            if self._has_moved(journal, session, Position(*since)):
                raise PolicyError(
                    "another process of this node has gone on since this one began: send the message again"
                )
            if update is not None:
                self._note_update(journal, session, round_number, update, repeats=repeats)
            before = self._names(journal)
            self._files.delete_others(before)  # of processes that ended before they had committed
            with self._deleted_where_refused() as written:
                for name, content in contents.items():
                    # Sealed under the row's own token, it is what this row wrote and no other: no digest is needed.
                    row = journal.append("keep", session, round_number=round_number, purpose=name)
                    file, secret = None, content
                    if len(content) > LONGEST_IN_TABLE_BYTES:
                        file, secret = self._files.write(content)
                        written.append(file)
                    sealed = journal.keys.seal(row, secret, session, name, file)
                    values = (session, name, row.number, file, sealed)
                    journal.connection.execute("REPLACE INTO kept VALUES (?, ?, ?, ?, ?)", values)
            replaced = before - self._names(journal)
        self._files.delete(replaced)

    @staticmethod
    def _names(journal: Journal) -> set[str]:
        select = "SELECT file FROM kept WHERE file IS NOT NULL"
        return {name for (name,) in journal.connection.execute(select).fetchall()}

    @contextlib.contextmanager
    def _deleted_where_refused(self) -> Iterator[list[str]]:
        """Delete the files that were written where something else fails before the commit.

        Not where the commit fails: it may turn out to be done.
        """
        written: list[str] = []
        try:
            yield written
        except BaseException:
            self._files.delete(written)
            raise

    @staticmethod
    def _has_moved(journal: Journal, session: bytes, since: Position) -> bool:
        """Say whether something was kept of the session, or the store is another one, since then."""
        select = "SELECT max(number) FROM journal WHERE session = ?"
        ((newest,),) = journal.connection.execute(select, (session,)).fetchall()
        return journal.epoch != since.epoch or journal.number < since.rows or (newest or 0) > since.rows

    def _note_update(
        self, journal: Journal, session: bytes, round_number: int, update: bytes, *, repeats: bool
    ) -> None:
        digest = journal.keys.mac("update", update)
        select = "SELECT session, round FROM journal WHERE kind = 'update' AND digest = ?"
        places = journal.connection.execute(select, (digest,)).fetchall()
        if not repeats and any(place != (session, round_number) for place in places):
            raise PolicyError(UPDATE_OF_ANOTHER_ROUND)
        if (session, round_number) not in places:
            journal.append("update", session, round_number=round_number, digest=digest)
