"""The memory of a node whose steps run each in a process of its own: what a client's role keeps between messages.

Written and on the disk before a reply leaves, so that a node that is killed at any moment goes on where it stood.
"""

from __future__ import annotations

import contextlib
import functools
import sqlite3
from collections.abc import Iterator, Mapping

from shieldfl.errors import PolicyError
from shieldfl.roles.kept_files import KeptFiles
from shieldfl.roles.store_file import StoreLayout
from shieldfl.roles.store_journal import Journal, Position, Row, refuse_altered
from shieldfl.roles.store_of_client import StoreOfClient

__all__ = ["UPDATE_OF_ANOTHER_ROUND", "StepStore"]

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
    copy a round's second frame could be made: see :class:`~shieldfl.roles.store.Store`. Long contents are files of the
    folder ``PATH-kept``, under names that are this store's: back both up together. What was replaced is deleted by
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
