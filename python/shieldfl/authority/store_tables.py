"""The tables of an authority's store beside its journal: clients' keys and grants, answered sets, its enrolment key."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any

from shieldfl.authority.store_file import StoreLayout
from shieldfl.authority.store_journal import (
    ENROLMENT_HAS_ENDED,
    MOST_ROUNDS_AHEAD,
    OPENER_HAS_GRANT,
    ClientKey,
    Grant,
    Journal,
    Keys,
    Request,
    Row,
    SessionRules,
    Value,
    canonical,
    digest_of,
    digest_of_list,
    refuse_altered,
)
from shieldfl.errors import PolicyError

LAYOUT = StoreLayout(
    tables="""
CREATE TABLE sessions (session BLOB PRIMARY KEY, epoch INTEGER, manifest_digest BLOB, min_clients INTEGER,
    window INTEGER, answers_kept INTEGER) WITHOUT ROWID;
CREATE TABLE clients (session BLOB, client INTEGER, round INTEGER, changed INTEGER, sealed BLOB,
    PRIMARY KEY (session, client)) WITHOUT ROWID;
CREATE TABLE grants (number INTEGER PRIMARY KEY, session BLOB, client INTEGER, request_digest BLOB, sealed BLOB,
    UNIQUE (session, client));
CREATE TABLE answers (number INTEGER PRIMARY KEY, total_digest BLOB, sealed BLOB);
CREATE INDEX kept_answers ON answers (number) WHERE sealed IS NOT NULL;
CREATE TABLE answered (session BLOB, round INTEGER, purpose TEXT, client INTEGER, frame_id BLOB, number INTEGER,
    PRIMARY KEY (session, round, purpose, client)) WITHOUT ROWID;
CREATE TABLE enrolment_key (number INTEGER PRIMARY KEY, sealed BLOB);
""",
    nothing="Nothing was answered",
    taken="has an answer for one of these clients already: begin a later round",
)
"""The key of ``answered`` is the rule of the whole: one answer for each session, round, purpose and client."""

_CLIENTS_AT_ONCE = 500
"""Of which rows are asked for by one statement: fewer values than any SQLite takes."""

OWNER_OF_ENROLMENT_KEY: tuple[Value, ...] = ("enrolment key",)
"""What the authority's enrolment key is sealed for: there is one in a store."""


def owner_of_key(session: bytes, client: int, round_number: int) -> tuple[str, bytes, int, int]:
    """Return what a client's key is sealed for: its place, and the round that it stands at."""
    return "key", session, client, round_number


def owner_of_answer(session: bytes, round_number: int, purpose: str) -> tuple[str, bytes, int, str]:
    """Return what an answer is sealed for: the session, round and purpose that it answers."""
    return "answer", session, round_number, purpose


def owner_of_grant(session: bytes, client: int | None) -> tuple[str, bytes, int | None]:
    """Return what a grant is sealed for: a client's, or, for None, whoever opens answers and is none."""
    return "grant", session, client


def newest_round(journal: Journal, session: bytes, kind: str) -> int:
    """Return the newest round that was answered ("answer") or ended ("close"), -1 before the first."""
    select = "SELECT max(round) FROM journal WHERE session = ? AND kind = ?"
    (newest,) = journal.connection.execute(select, (session, kind)).fetchone()
    return -1 if newest is None else int(newest)


def oldest_open(journal: Journal, session: bytes, rules: SessionRules) -> int:
    """Return the oldest round that may still be answered: in the window, and not ended."""
    answered, closed = (newest_round(journal, session, kind) for kind in ("answer", "close"))
    return max(0, answered - rules.window, closed + 1)


def check_ahead(round_number: int, oldest: int) -> None:
    """Raise PolicyError for a round that is too far above the oldest that is open."""
    if round_number > oldest + MOST_ROUNDS_AHEAD:
        raise PolicyError(
            f"round {round_number} is more than {MOST_ROUNDS_AHEAD} above {oldest}, the oldest that is open: go "
            "on from there"
        )


def enrol_client(journal: Journal, session: bytes, client: int, key: ClientKey, grant: Grant | None) -> None:
    """Write a client's key, and what it gets. Raises PolicyError for one that was ever enrolled in the session."""
    select = "SELECT 1 FROM clients WHERE session = ? AND client = ?"
    if journal.connection.execute(select, (session, client)).fetchone() is not None:
        raise PolicyError(f"client {client} was enrolled in the session before: take another number")
    digest = None if grant is None else digest_of_grant(grant)
    row = journal.append("enrol", session, client=client, digest=digest)
    write_keys(journal, row, session, {client: key})
    if grant is not None:
        _write_grant(journal, row, session, client, grant)


def revoke_client(journal: Journal, session: bytes, client: int) -> None:
    """Delete a client's key and grant. Raises PolicyError for one that was never enrolled, or revoked before."""
    read_keys(journal, session, [client])
    row = journal.append("revoke", session, client=client)
    revoked = (session, client, None, row.number, None)
    journal.connection.execute("REPLACE INTO clients VALUES (?, ?, ?, ?, ?)", revoked)
    delete = "DELETE FROM grants WHERE session = ? AND client = ?"
    journal.connection.execute(delete, (session, client))


def grant_to_opener(journal: Journal, session: bytes, grant: Grant) -> None:
    """Write what whoever opens answers gets, and is no client. Raises PolicyError where there is such a grant."""
    if read_grant(journal, session, None) is not None:
        raise PolicyError(OPENER_HAS_GRANT)
    row = journal.append("grant", session, digest=digest_of_grant(grant))
    _write_grant(journal, row, session, None, grant)


def end_with_last(journal: Journal, sessions: Iterable[bytes], clients: int | None) -> None:
    """End enrolment where so many clients were enrolled in every one of these sessions; never for None."""
    select = "SELECT count(*) FROM clients WHERE session = ?"
    counts = (journal.connection.execute(select, (session,)).fetchone()[0] for session in sessions)
    if clients is not None and all(count >= clients for count in counts):
        erase_enrolment_key(journal)


def clients_with_keys(journal: Journal, session: bytes) -> list[int]:
    """Return the clients of a session that are enrolled and were not revoked."""
    select = "SELECT client FROM clients WHERE session = ? AND sealed IS NOT NULL"
    return [client for (client,) in journal.connection.execute(select, (session,))]


def read_keys(journal: Journal, session: bytes, clients: Iterable[int]) -> dict[int, ClientKey]:
    """Return keys by client. Raises PolicyError for one that was never enrolled, or revoked."""
    keys = {}
    row: Row | None = None
    asked = list(clients)
    select = "SELECT client, round, changed, sealed FROM clients WHERE session = ? AND client IN"
    held = {client: rest for client, *rest in _rows_of_clients(journal, select, (session,), asked)}
    for client in asked:
        if client not in held or held[client][2] is None:
            what = "was revoked" if client in held else "is not enrolled in the session"
            raise PolicyError(f"client {client} {what}: leave it out, in a new round")
        round_number, changed, sealed = held[client]
        # Those of one transaction have one row, which is every client's from the first answer on.
        if row is None or row.number != changed:
            row = journal.row(changed)
        owner = owner_of_key(session, client, round_number)
        keys[client] = ClientKey(round_number, journal.keys.unseal(row, sealed, *owner))
    return keys


def _rows_of_clients(
    journal: Journal, select: str, values: tuple[Value, ...], clients: list[int]
) -> Iterator[tuple[Any, ...]]:
    """Return the rows of clients, many at a time; ``select`` ends before the list of them."""
    for first in range(0, len(clients), _CLIENTS_AT_ONCE):
        some = clients[first : first + _CLIENTS_AT_ONCE]
        places = ",".join("?" * len(some))
        yield from journal.connection.execute(f"{select} ({places})", (*values, *some))


def write_keys(journal: Journal, row: Row, session: bytes, keys: Keys) -> None:
    """Write keys, by client, as what this row of the journal changes."""

    def sealed(client: int, key: ClientKey) -> bytes:
        return journal.keys.seal(row, key.key, *owner_of_key(session, client, key.round))

    # One after the other: a list of all would be one more copy of what a million clients have.
    rows = ((session, client, key.round, row.number, sealed(client, key)) for client, key in keys.items())
    journal.connection.executemany("REPLACE INTO clients VALUES (?, ?, ?, ?, ?)", rows)


def stored_answer(journal: Journal, asked: Request, digest: bytes) -> bytes | None:
    """Return the answer that this request got.

    None where none of its clients was answered for what it asks. Raises PolicyError for another list or total, and for
    an answer that is no longer kept.
    """
    select = "SELECT number FROM answered WHERE session = ? AND round = ? AND purpose = ? AND client IN"
    found = next(_rows_of_clients(journal, select, asked.occasion, list(asked.clients)), None)
    if found is None:
        return None
    row = journal.row(found[0])
    if row.digest != digest:
        raise PolicyError(
            f"a client of this list was answered for in round {asked.round} with another list or total: the difference "
            "of the two could be its update. Start a new round, with updates that were in no answered list"
        )
    select = "SELECT sealed FROM answers WHERE number = ?"
    (sealed,) = journal.connection.execute(select, (row.number,)).fetchone()
    if sealed is None:
        raise PolicyError(
            f"this was answered, and is not answered again: answers of round {asked.round} are no longer kept"
        )
    return journal.keys.unseal(row, sealed, *owner_of_answer(*asked.occasion))


def write_answer(journal: Journal, asked: Request, digest: bytes, answer: bytes, ratcheted: Keys) -> None:
    """Write an answered set: a row of the journal, the list, the answer and the keys."""
    session, round_number, purpose = asked.occasion
    row = journal.append("answer", session, round_number=round_number, purpose=purpose, digest=digest)
    sealed = journal.keys.seal(row, answer, *owner_of_answer(*asked.occasion))
    execute, executemany = journal.connection.execute, journal.connection.executemany
    execute("INSERT INTO answers VALUES (?, ?, ?)", (row.number, asked.total_digest, sealed))
    listed = ((*asked.occasion, client, frame_id, row.number) for client, frame_id in asked.participants)
    executemany("INSERT INTO answered VALUES (?, ?, ?, ?, ?, ?)", listed)
    write_keys(journal, row, session, ratcheted)


def drop_answers(journal: Journal, session: bytes, rules: SessionRules) -> None:
    """Overwrite the answers of rounds for which they are no longer kept; who was answered stays."""
    # Those that are kept are few, however many rounds there were: each row is looked up from there.
    select = """SELECT number FROM answers INDEXED BY kept_answers CROSS JOIN journal USING (number)
        WHERE sealed IS NOT NULL AND session = ? AND round <= ?"""
    newest = newest_round(journal, session, "answer")
    dropped = journal.connection.execute(select, (session, newest - rules.answers_kept)).fetchall()
    journal.connection.executemany("UPDATE answers SET sealed = NULL WHERE number = ?", dropped)


def digest_of_grant(grant: Grant) -> bytes:
    """Return what the row that enrols a client says of its grant: SHA-256, 32 bytes."""
    return digest_of(grant.request_digest, grant.grant)


def _write_grant(journal: Journal, row: Row, session: bytes, client: int | None, grant: Grant) -> None:
    sealed = journal.keys.seal(row, grant.grant, *owner_of_grant(session, client))
    values = (row.number, session, client, grant.request_digest, sealed)
    journal.connection.execute("INSERT INTO grants VALUES (?, ?, ?, ?, ?)", values)


def read_grant(journal: Journal, session: bytes, client: int | None) -> Grant | None:
    """Return what a client got for its enrolment, or, for None, whoever opens; None where there is nothing."""
    select = "SELECT number, request_digest, sealed FROM grants WHERE session = ? AND client IS ?"
    found = journal.connection.execute(select, (session, client)).fetchone()
    if found is None:
        return None
    number, request_digest, sealed = found
    grant = journal.keys.unseal(journal.row(number), sealed, *owner_of_grant(session, client))
    return Grant(grant, request_digest)


def read_enrolment_key(journal: Journal) -> bytes | None:
    """Return what the store has of the authority's enrolment key; None before it was written, and once it is erased."""
    found = journal.connection.execute("SELECT number, sealed FROM enrolment_key").fetchone()
    if found is None:
        return None
    return journal.keys.unseal(journal.row(found[0]), found[1], *OWNER_OF_ENROLMENT_KEY)


def enrolment_has_ended(journal: Journal) -> bool:
    """Whether the authority enrols nobody any more."""
    select = "SELECT 1 FROM journal WHERE session IS NULL AND kind = 'end'"
    return journal.connection.execute(select).fetchone() is not None


def check_enrolment_open(journal: Journal) -> None:
    """Raise PolicyError where enrolment has ended."""
    if enrolment_has_ended(journal):
        raise PolicyError(ENROLMENT_HAS_ENDED)


def write_enrolment_key(journal: Journal, key: bytes) -> None:
    """Write the authority's enrolment key."""
    row = journal.append("key")
    sealed = journal.keys.seal(row, key, *OWNER_OF_ENROLMENT_KEY)
    journal.connection.execute("INSERT INTO enrolment_key VALUES (?, ?)", (row.number, sealed))


def erase_enrolment_key(journal: Journal) -> None:
    """End enrolment, for good."""
    journal.append("end")
    journal.connection.execute("DELETE FROM enrolment_key")


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
