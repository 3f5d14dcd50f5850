"""The tables of a client's store beside its journal: keys, what it enrolled with, frames."""

from __future__ import annotations

import contextlib
import struct
from typing import NamedTuple

from shieldfl.array_view import Buffer
from shieldfl.errors import KeyMismatchError, PolicyError, WireFormatError
from shieldfl.roles.store_file import StoreLayout
from shieldfl.roles.store_journal import Journal, Row, Value, digest_of
from shieldfl.roles.store_records import ClientKey
from shieldfl.scheme.enrolment import read_grant

__all__ = [
    "LAYOUT",
    "Enrolment",
    "Frame",
    "Granted",
    "drop_frames",
    "read_enrolment",
    "read_frame",
    "read_key",
    "was_encrypted",
    "was_enrolled",
    "write_enrolment",
    "write_frame",
    "write_key",
]

LAYOUT = StoreLayout(
    tables="""
CREATE TABLE keys (session BLOB PRIMARY KEY, client INTEGER, round INTEGER, changed INTEGER, sealed BLOB) WITHOUT ROWID;
CREATE TABLE enrolments (session BLOB PRIMARY KEY, number INTEGER, kind TEXT, requests BLOB, sealed BLOB) WITHOUT ROWID;
CREATE TABLE frames (number INTEGER PRIMARY KEY, session BLOB, round INTEGER, purpose TEXT, made_of BLOB, sealed BLOB,
    UNIQUE (session, round, purpose));
""",
    nothing="No frame was made",
    taken="has a frame of this round, purpose and part already: send that again, or begin a later round",
)
"""What ``frames`` keeps apart is the rule of the whole: one frame for each session, round, purpose and part."""


class Granted(NamedTuple):
    """What a client has of one authority's grant."""

    reads_grants: bytes
    """What grants to it are read with, 32 bytes; nothing for a key that was enrolled elsewhere."""
    opening_key: bytes = b""
    """What opens that authority's answers, 32 bytes; nothing before the grant."""


class Enrolment(NamedTuple):
    """What a client has of its enrolment in a session, in the order of the authorities."""

    kind: str
    """Of the row that wrote it: "enrol" as long as there is no grant, then "grant"."""
    requests: list[bytes]
    """What it asked with; nothing once all have granted it, and where it was enrolled elsewhere."""
    granted: list[Granted]

    @property
    def digest(self) -> bytes:
        """What the journal says of it, 32 bytes."""
        return digest_of(*self.requests)

    def index_of(self, session: bytes, grant: Buffer) -> int:
        """Return whose grant it is. Raises KeyMismatchError for another client's or session's, PolicyError for none."""
        keys = [one.reads_grants for one in self.granted]
        if not all(keys) or not keys:
            raise PolicyError("the session's key was enrolled elsewhere, and so were its grants taken")
        for index, key in enumerate(keys[:-1]):
            with contextlib.suppress(KeyMismatchError):
                read_grant(key, session, grant)
                return index
        read_grant(keys[-1], session, grant)
        return len(keys) - 1


class Frame(NamedTuple):
    """A frame that was made, and a MAC of what it was made of."""

    frame: bytes
    made_of: bytes


def _owner_of_key(session: bytes, client: int, round_number: int) -> tuple[Value, ...]:
    return "key", session, client, round_number


def _owner_of_enrolment(session: bytes, kind: str, requests: bytes) -> tuple[Value, ...]:
    return kind, session, requests


def _owner_of_frame(session: bytes, round_number: int, purpose: str, made_of: bytes) -> tuple[Value, ...]:
    return "frame", session, round_number, purpose, made_of


def was_enrolled(journal: Journal, session: bytes) -> bool:
    """Whether the session ever had a key here, also one that is gone since a backup was restored."""
    select = "SELECT 1 FROM journal WHERE session = ? AND kind = 'enrol'"
    return journal.connection.execute(select, (session,)).fetchone() is not None


def read_key(journal: Journal, session: bytes) -> tuple[int, ClientKey]:
    """Return the client's number and its key. Raises PolicyError where there is none."""
    select = "SELECT client, round, changed, sealed FROM keys WHERE session = ?"
    found = journal.connection.execute(select, (session,)).fetchone()
    if found is None:
        raise PolicyError(
            "this store has no key of the session any more, since it was restored from a backup: enrol in a new session"
            if was_enrolled(journal, session)
            else "this store has no key of the session: enrol first"
        )
    client, round_number, changed, sealed = found
    owner = _owner_of_key(session, client, round_number)
    return client, ClientKey(round_number, journal.keys.unseal(journal.row(changed), sealed, *owner))


def write_key(journal: Journal, row: Row, session: bytes, client: int, key: ClientKey) -> None:
    """Write the client's key, as what this row of the journal changes."""
    sealed = journal.keys.seal(row, key.key, *_owner_of_key(session, client, key.round))
    values = (session, client, key.round, row.number, sealed)
    journal.connection.execute("REPLACE INTO keys VALUES (?, ?, ?, ?, ?)", values)


def read_enrolment(journal: Journal, session: bytes) -> Enrolment:
    """Return what the client has of its enrolment. Raises PolicyError where there is nothing."""
    select = "SELECT number, kind, requests, sealed FROM enrolments WHERE session = ?"
    found = journal.connection.execute(select, (session,)).fetchone()
    if found is None:
        read_key(journal, session)
        raise WireFormatError("the store was altered: what the client enrolled with is missing")
    number, kind, requests, sealed = found
    owner = _owner_of_enrolment(session, kind, requests)
    secret = _parts(journal.keys.unseal(journal.row(number), sealed, *owner))
    granted = [Granted(*pair) for pair in zip(secret[::2], secret[1::2], strict=True)]
    return Enrolment(kind, _parts(requests), granted)


def write_enrolment(journal: Journal, row: Row, session: bytes, enrolment: Enrolment) -> None:
    """Write what the client has of its enrolment since this row of the journal."""
    kind, requests = enrolment.kind, _joined(enrolment.requests)
    secret = _joined([part for one in enrolment.granted for part in one])
    sealed = journal.keys.seal(row, secret, *_owner_of_enrolment(session, kind, requests))
    values = (session, row.number, kind, requests, sealed)
    journal.connection.execute("REPLACE INTO enrolments VALUES (?, ?, ?, ?, ?)", values)


def _joined(parts: list[bytes]) -> bytes:
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def _parts(joined: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(joined):
        (length,) = struct.unpack_from("<I", joined, at)
        parts.append(joined[at + 4 : at + 4 + length])
        at += 4 + length
    return parts


def read_frame(journal: Journal, session: bytes, round_number: int, purpose: str) -> Frame | None:
    """Return the frame of a round and purpose (with part); None where none was made, or it is no longer kept."""
    select = "SELECT number, made_of, sealed FROM frames WHERE session = ? AND round = ? AND purpose = ?"
    found = journal.connection.execute(select, (session, round_number, purpose)).fetchone()
    if found is None:
        return None
    number, made_of, sealed = found
    owner = _owner_of_frame(session, round_number, purpose, made_of)
    return Frame(journal.keys.unseal(journal.row(number), sealed, *owner), made_of)


def write_frame(
    journal: Journal, row: Row, session: bytes, round_number: int, purpose: str, frame: Frame
) -> None:
    """Write a frame, which this row of the journal is."""
    sealed = journal.keys.seal(
        row, frame.frame, *_owner_of_frame(session, round_number, purpose, frame.made_of)
    )
    values = (row.number, session, round_number, purpose, frame.made_of, sealed)
    journal.connection.execute("INSERT INTO frames VALUES (?, ?, ?, ?, ?, ?)", values)


def drop_frames(journal: Journal, session: bytes, round_number: int) -> None:
    """Overwrite the frames of all rounds before this one."""
    delete = "DELETE FROM frames WHERE session = ? AND round < ?"
    journal.connection.execute(delete, (session, round_number))


def was_encrypted(journal: Journal, session: bytes, round_number: int, values: bytes) -> bool:
    """Whether values of this MAC went into a frame of another round of the session."""
    select = "SELECT 1 FROM journal WHERE session = ? AND kind = 'frame' AND round != ? AND digest = ?"
    return journal.connection.execute(select, (session, round_number, values)).fetchone() is not None
