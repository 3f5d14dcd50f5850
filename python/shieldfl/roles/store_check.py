"""Whether all of an authority's store is what its journal says: read as a whole whenever the file is opened."""

from __future__ import annotations

import itertools
from collections import defaultdict
from operator import itemgetter

from shieldfl.roles.store_journal import Journal, Row, canonical, digest_of_list, refuse_altered
from shieldfl.roles.store_records import Grant
from shieldfl.roles.store_tables import (
    OWNER_OF_ENROLMENT_KEY,
    digest_of_grant,
    owner_of_answer,
    owner_of_grant,
    owner_of_key,
)

__all__ = ["check_store"]


def check_store(journal: Journal) -> None:
    """Verify the chain of the journal, then every other table against it. Raises WireFormatError that names the row.

    Time and memory grow with what the store holds: a second for some hundred thousand clients in answered sets.
    """
    replayed = _Replay(journal)
    for row in journal.rows():
        replayed.take(row)
    replayed.check_the_rest()


class _Replay:
    """Goes through the journal again, and keeps what the other tables have to say at its end."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._select = journal.connection.execute
        self._epoch = 0
        self._sessions: dict[bytes, int] = {}
        """The epoch of each."""
        self._newest: dict[bytes, int] = {}
        """The newest round of each session that was answered."""
        self._changed: defaultdict[bytes, dict[int, int]] = defaultdict(dict)
        """By session and client, the row that wrote its key last."""
        self._closed: dict[bytes, int] = {}
        self._revoked: set[tuple[bytes | None, int | None]] = set()
        self._granted: dict[tuple[bytes, int | None], Row] = {}
        """By session and client (None: whoever opens, and is none), the row that granted it answers."""
        self._enrolment_key: list[int] = []
        """The row that wrote the enrolment key, until one ends enrolment."""
        self._answered = itertools.groupby(
            self._select(
                "SELECT number, client, frame_id, session, round, purpose FROM answered ORDER BY 1, 2"
            ),
            key=itemgetter(0),
        )
        self._answers = self._select("SELECT number, total_digest FROM answers ORDER BY number")

    def take(self, row: Row) -> None:
        match row.kind, row.session, row.client, row.round:
            case "session", bytes(session), _, _:
                self._check_session(row, session)
                self._sessions[session] = self._epoch
            case "enrol", bytes(session), int(client), _:
                self._changed[session][client] = row.number
                if row.digest is not None:
                    self._granted[session, client] = row
            case "grant", bytes(session), None, None:
                self._granted[session, None] = row
            case "revoke", bytes(session), int(client), _:
                self._changed[session][client] = row.number
                self._revoked.add((session, client))
                self._granted.pop((session, client), None)
            case "close", bytes(session), _, _:
                self._closed[session] = row.number
            case "answer", bytes(session), _, int(round_number):
                clients = self._checked_list(row)
                self._changed[session].update(dict.fromkeys(clients, row.number))
                self._newest[session] = max(round_number, self._newest.get(session, 0))
            case "begin" | "reply", bytes(), None, int():
                pass  # Their digests are in the chain of the journal, and nowhere else.
            case "restore", None, _, int(epoch):
                self._epoch = epoch
                self._granted.clear()
            case "key", None, _, _:
                self._enrolment_key = [row.number]
            case "end", None, _, _:
                self._enrolment_key = []
            case _:
                refuse_altered(
                    f"row {row.number} of the journal is of a kind that this version does not know"
                )

    def _check_session(self, row: Row, session: bytes) -> None:
        rules = self._select("SELECT * FROM sessions WHERE session = ?", (session,)).fetchone()
        if rules is None or canonical(*rules) != row.digest:
            refuse_altered(
                f"row {row.number} of the journal began a session whose rules are others now, or gone"
            )

    def _checked_list(self, row: Row) -> list[int]:
        """Return the clients of an answered set."""
        number, total_digest = next(self._answers, (0, b""))
        group, entries = next(self._answered, (0, iter(())))
        listed = list(entries)
        occasion = {entry[3:] for entry in listed}
        if number != row.number or group != row.number or occasion != {(row.session, row.round, row.purpose)}:
            refuse_altered(
                f"the list of row {row.number} of the journal is not there, or an earlier one was added"
            )
        if digest_of_list(total_digest, (entry[1:3] for entry in listed)) != row.digest:
            refuse_altered(f"the list of row {row.number} of the journal is not what was answered")
        return [entry[1] for entry in listed]

    def check_the_rest(self) -> None:
        """Check what has to be there once all rows were taken, and that there is nothing else."""
        for _ in itertools.chain(self._answers, self._answered):
            refuse_altered("there is an answered list that no row of the journal has")
        (sessions,) = self._select("SELECT count(*) FROM sessions").fetchone()
        if sessions != len(self._sessions):
            refuse_altered("there is a session that no row of the journal began")
        self._check_answers()
        self._check_keys()
        self._check_grants()
        self._check_enrolment_key()

    def _check_answers(self) -> None:
        sealed_of = "SELECT journal.*, sealed FROM journal JOIN answers USING (number)"
        kept_of = dict(self._select("SELECT session, answers_kept FROM sessions"))
        for *values, sealed in self._select(sealed_of):
            row = Row(*values)
            session, round_number, purpose = row.session or b"", row.round or 0, row.purpose or ""
            is_current = self._sessions.get(session) == self._epoch
            if is_current and self._newest[session] - round_number < kept_of[session]:
                self._journal.keys.unseal(row, sealed, *owner_of_answer(session, round_number, purpose))
            elif sealed is not None:
                refuse_altered(
                    f"the answer of row {row.number} of the journal is there, though it was dropped"
                )

    def _check_keys(self) -> None:
        expected = {
            (session, client): max(
                changed, 0 if (session, client) in self._revoked else self._closed.get(session, 0)
            )
            for session, clients in self._changed.items()
            if self._sessions.get(session) == self._epoch
            for client, changed in clients.items()
        }
        # By row, so that each row's cipher is made once.
        for session, client, round_number, changed, sealed in self._select(
            "SELECT * FROM clients ORDER BY changed"
        ):
            number = expected.pop((session, client), None)
            if number != changed:
                refuse_altered(f"the key of client {client} is not the one of row {number} of the journal")
            if (session, client) in self._revoked:
                if (round_number, sealed) != (None, None):
                    refuse_altered(
                        f"client {client} was revoked by row {number} of the journal, and has a key again"
                    )
                continue
            owner = owner_of_key(session, client, round_number)
            self._journal.keys.unseal(self._journal.row(changed), sealed, *owner)
        for (_, client), number in expected.items():
            refuse_altered(f"client {client}, whose key row {number} of the journal wrote, is missing")

    def _check_grants(self) -> None:
        for number, session, client, request_digest, sealed in self._select("SELECT * FROM grants"):
            row = self._granted.pop((session, client), None)
            if row is None or row.number != number:
                whose = "whoever opens" if client is None else f"client {client}"
                refuse_altered(f"there is a grant of {whose} that no row of the journal has")
            grant = self._journal.keys.unseal(row, sealed, *owner_of_grant(session, client))
            if digest_of_grant(Grant(grant, request_digest)) != row.digest:
                refuse_altered(f"the grant of row {number} of the journal is not what was given")
        for row in self._granted.values():
            refuse_altered(f"the grant that row {row.number} of the journal wrote is missing")

    def _check_enrolment_key(self) -> None:
        keys = self._select("SELECT number, sealed FROM enrolment_key").fetchall()
        if [number for number, _ in keys] != self._enrolment_key:
            refuse_altered(
                "the authority's enrolment key is not the one that the journal says, or is back though erased"
            )
        for number, sealed in keys:
            self._journal.keys.unseal(self._journal.row(number), sealed, *OWNER_OF_ENROLMENT_KEY)
