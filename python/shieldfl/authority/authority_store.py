"""The memory of a key authority: whom it has answered, with what, and the clients' keys, in one SQLite file.

Written and on the disk before an answer leaves, so that neither a crash nor a second request makes it give another one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Self

from shieldfl.authority.step_store import KeptMessage, check_replies_are_known, keep_message, row_of_message
from shieldfl.authority.store import Store
from shieldfl.authority.store_file import MEMORY
from shieldfl.authority.store_journal import (
    DIGEST_BYTES,
    SESSION_BYTES,
    Grant,
    Grants,
    Journal,
    Keys,
    Request,
    SessionRules,
    as_bytes,
    as_number,
    canonical,
    checked_enrolments,
    checked_grant,
    checked_keys,
    checked_rules,
    checked_sessions,
    digest_of_list,
)
from shieldfl.authority.store_tables import (
    LAYOUT,
    check_ahead,
    check_enrolment_open,
    check_store,
    clients_with_keys,
    drop_answers,
    end_with_last,
    enrol_client,
    enrolment_has_ended,
    erase_enrolment_key,
    grant_to_opener,
    newest_round,
    oldest_open,
    read_enrolment_key,
    read_grant,
    read_keys,
    revoke_client,
    stored_answer,
    write_answer,
    write_enrolment_key,
    write_keys,
)
from shieldfl.errors import ParameterError, PolicyError


class AuthorityStore(Store):
    """The memory of one authority; the same for every scheme. Its owner is the authority's id.

    An answer is given once for each session, round, purpose and client, for ever: the same request gets the same bytes
    for as long as they are kept, and any other that names one of these clients is refused, as are rounds that are over.
    From an old copy it could be given again for another list, and the difference of the two be one client's update: see
    :class:`~shieldfl.authority.store.Store`.
    """

    _layout = LAYOUT
    _why_uncopied = "holds an authority's secrets and is neither copied nor pickled: open it where it is used"

    @classmethod
    def create(cls, path: str | PathLike[str], key: bytes, authority_id: bytes) -> Self:
        """Make an empty store, file mode 0600, and open it.

        Raises PolicyError where there is a file already; DataError; OSError for a folder that cannot be written;
        ParameterError.
        """
        cls._create(path, key, authority_id)
        return cls(path, key, authority_id)

    @classmethod
    def in_memory(cls, key: bytes, authority_id: bytes, content: bytes | None = None) -> Self:
        """Make a store that ends with this process, for a federation in one; ``content`` is :meth:`serialised`.

        Whoever goes on from an older content answers as an old copy of a file would. Raises as opening a file does.
        """
        if content is None:
            content = cls._created_content(key, authority_id)
        return cls(MEMORY, key, authority_id, _content=content)

    def _check_tables(self, journal: Journal) -> None:
        check_store(journal)

    def _forget(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM clients")
        connection.execute("DELETE FROM grants")
        connection.execute("UPDATE answers SET sealed = NULL")

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

    def has_session(self, session: bytes) -> bool:
        """Whether a session was begun, in whatever epoch. Raises ParameterError."""
        as_bytes(session, SESSION_BYTES, "session")
        with self._transaction() as journal:
            select = "SELECT 1 FROM sessions WHERE session = ?"
            return journal.connection.execute(select, (session,)).fetchone() is not None

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

    def enrol(self, session: bytes, keys: Keys, grants: Grants | None = None) -> None:
        """Enrol clients in a session, by number, each with its key and the round that this stands at.

        ``grants`` is what they get for it, which :meth:`grant` gives again. Raises PolicyError for a client that was
        enrolled in the session before, revoked or not, and once enrolment has ended; ParameterError.
        """
        self.enrol_in({session: keys}, {session: grants or {}})

    def enrol_in(
        self,
        keys: Mapping[bytes, Keys],
        grants: Mapping[bytes, Grants] | None = None,
        *,
        clients: int | None = None,
    ) -> None:
        """Enrol clients in several sessions, all or none; keys and grants by session. Raises as :meth:`enrol` does.

        ``clients`` is how many there will be: enrolment ends with the last one, in all sessions of the store.
        """
        checked = checked_enrolments(keys, grants)
        expected = None if clients is None else as_number(clients, "clients")
        with self._transaction() as journal:
            check_enrolment_open(journal)
            for session, own in checked.items():
                self._rules(journal, session)
                for client, (key, grant) in own.items():
                    enrol_client(journal, session, client, key, grant)
            end_with_last(journal, checked, expected)

    def grant_opener(self, sessions: Iterable[bytes], grant: Grant, *, clients: int | None = None) -> None:
        """Keep what whoever opens answers, and is no client, gets in several sessions: once, and there is no other.

        ``clients`` is how many there will be: where all are enrolled, enrolment ends with this. Raises PolicyError
        where there is such a grant, and once enrolment has ended; ParameterError.
        """
        checked = checked_sessions(sessions)
        checked_grant(grant)
        expected = None if clients is None else as_number(clients, "clients")
        with self._transaction() as journal:
            check_enrolment_open(journal)
            for session in checked:
                self._rules(journal, session)
                grant_to_opener(journal, session, grant)
            end_with_last(journal, checked, expected)

    def grant(self, session: bytes, client: int | None) -> Grant | None:
        """Return what a client got for its enrolment, or, for None, whoever opens; None without, or once revoked.

        Raises PolicyError for a session that is unknown, or of an earlier epoch; ParameterError.
        """
        as_bytes(session, SESSION_BYTES, "session")
        number = None if client is None else as_number(client, "a client's number")
        with self._transaction() as journal:
            self._rules(journal, session)
            return read_grant(journal, session, number)

    def keep_enrolment_key(self, key: bytes | None) -> bytes | None:
        """Keep what opens requests for enrolment, unless there is such a key; return the one that is kept.

        None once enrolment has ended, and where none was given yet. Raises ParameterError.
        """
        if key is not None and not isinstance(key, bytes):
            raise ParameterError("an enrolment key must be bytes")
        with self._transaction() as journal:
            kept = read_enrolment_key(journal)
            if kept is None and key is not None and not enrolment_has_ended(journal):
                write_enrolment_key(journal, key)
                return key
            return kept

    def end_enrolment(self) -> None:
        """Erase what opens requests, and enrol nobody any more, in any session; a second time changes nothing."""
        with self._transaction() as journal:
            if not enrolment_has_ended(journal):
                erase_enrolment_key(journal)

    def revoke(self, session: bytes, client: int) -> None:
        """Delete a client's key and grant: no list that names it is answered any more.

        Raises PolicyError for one that is not enrolled, or was revoked before; ParameterError.
        """
        as_bytes(session, SESSION_BYTES, "session")
        number = as_number(client, "a client's number")
        with self._transaction() as journal:
            self._rules(journal, session)
            revoke_client(journal, session, number)

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
            held = read_keys(journal, session, clients_with_keys(journal, session))
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

    def keep_message(self, message: KeptMessage, digest: bytes) -> None:
        """Keep a round's first message, or a reply, by its digest of 32 bytes; the same again changes nothing.

        Raises PolicyError where it was another one, and as :meth:`answer` does for sessions; ParameterError.
        """
        checked = message.checked()
        with self._transaction() as journal:
            self._rules(journal, checked.session)
            keep_message(journal, checked, digest)

    def row_of_message(self, message: KeptMessage) -> int:
        """Return the number of the row of a message that was kept; 0 where there is none. Raises ParameterError."""
        checked = message.checked()
        with self._transaction() as journal:
            row = row_of_message(journal, checked)
            return 0 if row is None else row.number

    def check_replies_are_known(self, message: KeptMessage, known: int) -> None:
        """Raise PolicyError where a reply that comes before a message was kept after the row ``known``."""
        checked = message.checked()
        with self._transaction() as journal:
            check_replies_are_known(journal, checked, known)

    def has_answered(self, session: bytes, round_number: int, total_digest: bytes) -> bool:
        """Say whether a request of this session, round and total was answered."""
        as_bytes(session, SESSION_BYTES, "session")
        digest = as_bytes(total_digest, DIGEST_BYTES, "total_digest")
        asked = session, as_number(round_number, "round_number"), digest
        with self._transaction() as journal:
            select = """SELECT 1 FROM journal JOIN answers USING (number)
                WHERE session = ? AND kind = 'answer' AND round = ? AND total_digest = ? LIMIT 1"""
            return journal.connection.execute(select, asked).fetchone() is not None
