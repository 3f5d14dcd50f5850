"""The memory of a key authority: whom it has answered, with what, and the clients' keys, in one SQLite file.

Written and on the disk before an answer leaves, so that neither a crash nor a second request makes it give another one.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Self

from shieldfl.errors import ParameterError, PolicyError
from shieldfl.roles.store_check import check_store
from shieldfl.roles.store_file import MEMORY, StoreFile, create_content, create_file
from shieldfl.roles.store_journal import (
    KEY_BYTES,
    Journal,
    Position,
    StoreKeys,
    canonical,
    digest_of_list,
)
from shieldfl.roles.store_records import (
    AUTHORITY_BYTES,
    MOST_ROUNDS_AHEAD,
    SESSION_BYTES,
    ClientKey,
    Keys,
    Request,
    SessionRules,
    as_bytes,
    as_number,
    checked_keys,
    checked_rules,
)
from shieldfl.roles.store_tables import (
    check_ahead,
    drop_answers,
    is_enrolled,
    newest_round,
    oldest_open,
    read_keys,
    stored_answer,
    write_answer,
    write_keys,
)
from shieldfl.stateful import Uncopied

__all__ = ["MOST_ROUNDS_AHEAD", "AuthorityStore", "ClientKey", "Position", "SessionRules"]


class AuthorityStore(Uncopied):
    """The memory of one authority; the same for every scheme. Thread-safe; one process at a time.

    An answer is given once for each session, round, purpose and client, for ever: the same request gets the same bytes
    for as long as they are kept, and any other that names one of these clients is refused, as are rounds that are over.
    Every operation is one transaction; what raises an error has changed nothing, and answered nothing.

    **An old copy of the whole file is a valid store.** What was answered after it was made could be answered again,
    otherwise, and the difference be one client's update. Nothing in a file can tell; who knows how far the store had
    come passes ``at_least``, from wherever :attr:`position` was noted. A backup is opened with ``restored=True``,
    which ends all sessions, or not at all; a snapshot of a machine is such a backup. Make one while the store is
    closed, and where it is put into place, delete what ends in ``-journal`` beside it: that is another file's.
    """

    _why_uncopied = "holds an authority's secrets and is neither copied nor pickled: open it where it is used"

    def __init__(
        self,
        path: str | PathLike[str],
        key: bytes,
        authority_id: bytes,
        *,
        at_least: tuple[int, int] = (0, 0),
        restored: bool = False,
        _content: bytes = b"",
    ) -> None:
        """Open what :meth:`create` made, and verify all of it.

        Parameters
        ----------
        path : of the file.
        key : 32 random bytes, those that it was created with.
        authority_id : 32 bytes, those that it was created with.
        at_least : a :attr:`position` that the store is known to have reached. An older file is refused.
        restored : the file is a backup. Begins an epoch above both the file's and that of ``at_least``: sessions of
            earlier ones are refused from now on, their keys and answers deleted. Give the newest epoch that anybody
            knows: a backup that is restored twice without it begins one epoch twice.

        Raises KeyMismatchError for another key or authority; WireFormatError for a file that was damaged or altered;
        PolicyError for one that is older than ``at_least``, or that another process holds; DataError for a disk that
        fails, or cannot be written; ParameterError.
        """
        self._key = as_bytes(key, KEY_BYTES, "a store's key")
        self._authority_id = as_bytes(authority_id, AUTHORITY_BYTES, "authority_id")
        self._keys: StoreKeys | None = None
        self._restored = restored
        if not isinstance(at_least, tuple) or len(at_least) != 2:
            raise ParameterError("at_least must be a position: an epoch and a number of rows")
        self._position = Position(*(as_number(number, "a number of at_least") for number in at_least))
        self._is_in_memory = path is MEMORY
        self._file = StoreFile(path if path is MEMORY else Path(path), self._check, _content)
        self._restored = False

    @classmethod
    def create(cls, path: str | PathLike[str], key: bytes, authority_id: bytes) -> Self:
        """Make an empty store, file mode 0600, and open it.

        Raises PolicyError where there is a file already; DataError; OSError for a folder that cannot be written;
        ParameterError.
        """
        keys = StoreKeys(key, as_bytes(authority_id, AUTHORITY_BYTES, "authority_id"))
        create_file(Path(path), lambda connection: Journal.begin(connection, keys))
        return cls(path, key, authority_id)

    @classmethod
    def in_memory(cls, key: bytes, authority_id: bytes, content: bytes | None = None) -> Self:
        """Make a store that ends with this process, for a federation in one; ``content`` is :meth:`serialised`.

        Whoever goes on from an older content answers as an old copy of a file would. Raises as opening a file does.
        """
        if content is None:
            keys = StoreKeys(key, as_bytes(authority_id, AUTHORITY_BYTES, "authority_id"))
            content = create_content(lambda connection: Journal.begin(connection, keys))
        return cls(MEMORY, key, authority_id, _content=content)

    def serialised(self) -> bytes:
        """Return all of a store in memory; its secrets are sealed under its key."""
        return self._file.serialised()

    def _check(self, connection: sqlite3.Connection) -> None:
        """Verify a file that was just opened: the first time, or again after an error of the disk."""
        self._keys = Journal.keys_of(connection, self._key, self._authority_id)
        journal = Journal(connection, self._keys)
        check_store(journal)
        if self._restored:
            epoch = as_number(max(journal.epoch, self._position.epoch) + 1, "the epoch after this")
            journal.append("restore", round_number=epoch)
            connection.execute("DELETE FROM clients")
            connection.execute("UPDATE answers SET sealed = NULL")
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
    def position(self) -> Position:
        """How far the store has come; noted elsewhere, such as in signed answers, it tells old copies."""
        return self._position

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Journal]:
        with self._file.transaction() as connection:
            assert self._keys is not None
            journal = Journal(connection, self._keys)
            yield journal
        self._position = max(self._position, journal.position)

    def add_session(self, session: bytes, rules: SessionRules) -> None:
        """Begin a session, 16 bytes, in the epoch that runs; the same one again changes nothing.

        Raises PolicyError for one that was begun with other rules, or in an earlier epoch; ParameterError.
        """
        as_bytes(session, SESSION_BYTES, "session")
        rules = checked_rules(rules)
        with self._transaction() as journal:
            select = "SELECT 1 FROM sessions WHERE session = ?"
            if journal.connection.execute(select, (session,)).fetchone() is not None:
                if self._rules(journal, session) != rules:
                    raise PolicyError("the session was begun with other rules: begin another session")
                return
            values = (session, journal.epoch, *rules)
            journal.connection.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?)", values)
            journal.append("session", session, digest=canonical(*values))

    def _rules(self, journal: Journal, session: bytes) -> SessionRules:
        select = "SELECT * FROM sessions WHERE session = ?"
        found = journal.connection.execute(select, (session,)).fetchone()
        if found is None:
            raise PolicyError("this authority has no such session: begin it first")
        _, epoch, *rules = found
        if epoch != journal.epoch:
            raise PolicyError(
                f"the session was begun in epoch {epoch}, and a backup of the store was restored since: what was "
                "answered in between is not known. Begin a new session"
            )
        return SessionRules(*rules)

    def enrol(self, session: bytes, keys: Keys) -> None:
        """Enrol clients in a session, by number, each with its key and the round that this stands at.

        Raises PolicyError for a client that was enrolled in the session before, revoked or not; ParameterError.
        """
        self.enrol_in({session: keys})

    def enrol_in(self, keys: Mapping[bytes, Keys]) -> None:
        """Enrol clients in several sessions, all or none; keys by session. Raises as :meth:`enrol` does."""
        checked = {
            as_bytes(session, SESSION_BYTES, "session"): checked_keys(own) for session, own in keys.items()
        }
        with self._transaction() as journal:
            for session, own in checked.items():
                self._rules(journal, session)
                for client, key in own.items():
                    if is_enrolled(journal, session, client):
                        raise PolicyError(
                            f"client {client} was enrolled in the session before: take another number"
                        )
                    row = journal.append("enrol", session, client=client)
                    write_keys(journal, row, session, {client: key})

    def revoke(self, session: bytes, client: int) -> None:
        """Delete a client's key: no list that names it is answered any more. Raises PolicyError; ParameterError."""
        as_bytes(session, SESSION_BYTES, "session")
        number = as_number(client, "a client's number")
        with self._transaction() as journal:
            self._rules(journal, session)
            read_keys(journal, session, [number])
            row = journal.append("revoke", session, client=number)
            revoked = (session, number, None, row.number, None)
            journal.connection.execute("REPLACE INTO clients VALUES (?, ?, ?, ?, ?)", revoked)

    def close_round(self, session: bytes, round_number: int, ratchet: Callable[[Keys], Keys]) -> None:
        """End a round, and all below it, for every client; nothing happens where it was ended before.

        ``ratchet`` gets the keys of all clients and returns all, each moved to the round after, unless it stands
        at a later one. Raises PolicyError for a round too far ahead; ParameterError for other keys than these.
        """
        as_bytes(session, SESSION_BYTES, "session")
        number = as_number(round_number, "round_number")
        with self._transaction() as journal:
            oldest = oldest_open(journal, session, self._rules(journal, session))
            if number <= newest_round(journal, session, "close"):
                return
            check_ahead(number, oldest)
            select = "SELECT client FROM clients WHERE session = ? AND sealed IS NOT NULL"
            held = read_keys(
                journal, session, [client for (client,) in journal.connection.execute(select, (session,))]
            )
            ratcheted = checked_keys(ratchet(held), held)
            if any(key.round != max(held[client].round, number + 1) for client, key in ratcheted.items()):
                raise ParameterError(f"every key has to be moved to round {number + 1}, and none further")
            row = journal.append("close", session, round_number=number)
            write_keys(journal, row, session, ratcheted)

    def newest_closed_round(self, session: bytes) -> int:
        """Return the newest round that :meth:`close_round` has ended, -1 before the first."""
        as_bytes(session, SESSION_BYTES, "session")
        with self._transaction() as journal:
            return newest_round(journal, session, "close")

    def answer(
        self,
        session: bytes,
        round_number: int,
        purpose: str,
        participants: Iterable[tuple[int, bytes]],
        total_digest: bytes,
        compute: Callable[[Keys], tuple[bytes, Keys]],
    ) -> bytes:
        """Answer for a set of clients: with the bytes that the same request got before, or else what is computed now.

        Parameters
        ----------
        session : 16 bytes.
        round_number, purpose : what is answered; each client once for each.
        participants : (client's number, frame id of 16 bytes), in any order.
        total_digest : 32 bytes, of the total over these frames.
        compute : gets the clients' keys and returns the answer, and all these keys, each where it stands from now on:
            at most at the round after this one. Called within the transaction, at most once, and not for a request
            that was answered. Its answer must not get anywhere but by what this method returns.

        Raises PolicyError, and computes nothing, for lists with duplicates, below ``min_clients``, with clients that
        are not enrolled, revoked or answered already in another list; for rounds that are over or more than
        :data:`MOST_ROUNDS_AHEAD` ahead; for a repeated request whose answer is no longer kept; for sessions that are
        unknown, or of an epoch before a backup was restored. ParameterError for arguments, or what was computed, of
        other types and lengths.
        """
        asked = Request.checked(session, round_number, purpose, participants, total_digest)
        digest = digest_of_list(asked.total_digest, asked.participants)
        with self._transaction() as journal:
            rules = self._rules(journal, session)
            stored = stored_answer(journal, asked, digest)
            if stored is not None:
                return stored
            if len(asked.participants) < rules.min_clients:
                raise PolicyError(
                    f"the list names {len(asked.participants)} clients, fewer than min_clients = {rules.min_clients}: "
                    "wait for more clients before closing the round"
                )
            oldest = oldest_open(journal, session, rules)
            if asked.round < oldest:
                raise PolicyError(f"round {asked.round} is over: the oldest that is open is {oldest}")
            check_ahead(asked.round, oldest)
            held = read_keys(journal, session, asked.clients)
            if any(key.round > asked.round for key in held.values()):
                raise PolicyError(
                    f"the key of a client was moved past round {asked.round}: ask for a later round"
                )
            computed = compute(held)
            if not isinstance(computed, tuple) or len(computed) != 2 or not isinstance(computed[0], bytes):
                raise ParameterError("what is computed must be bytes, the answer, and the keys by client")
            answer, ratcheted = computed[0], checked_keys(computed[1], held)
            if any(
                not held[client].round <= key.round <= asked.round + 1 for client, key in ratcheted.items()
            ):
                raise ParameterError(f"a key moves up alone, and at most to round {asked.round + 1}")
            write_answer(journal, asked, digest, answer, ratcheted)
            drop_answers(journal, session, rules)
        return answer

    def has_answered(self, session: bytes, round_number: int, total_digest: bytes) -> bool:
        """Say whether a request of this session, round and total was answered."""
        as_bytes(session, SESSION_BYTES, "session")
        asked = session, as_number(round_number, "round_number"), total_digest
        with self._transaction() as journal:
            select = """SELECT 1 FROM journal JOIN answers USING (number)
                WHERE session = ? AND kind = 'answer' AND round = ? AND total_digest = ? LIMIT 1"""
            return journal.connection.execute(select, asked).fetchone() is not None

    def close(self) -> None:
        """Give the file up: nothing more is answered, and another process can open it."""
        self._file.close()
        self._keys = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
