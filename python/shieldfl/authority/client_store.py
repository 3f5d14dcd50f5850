"""A client's memory: what it sent in each round, so that nothing is sent twice; read as a whole when it is opened."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import sqlite3
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import Buffer, Update, as_real, as_unsigned, as_update
from shieldfl.authority.store import StoreOfClient
from shieldfl.authority.store_file import StoreLayout
from shieldfl.authority.store_journal import (
    ClientKey,
    Journal,
    Row,
    Value,
    as_number,
    checked_purpose,
    digest_of,
    refuse_altered,
)
from shieldfl.encryption.answers import Answers, open_answered
from shieldfl.encryption.enrolment import SECRET_BYTES, EnrolmentRequest, Identity, grant_key, read_grant
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, WireFormatError
from shieldfl.masks import Mask

__all__ = [
    "LAYOUT",
    "ClientStore",
    "Enrolment",
    "Frame",
    "Granted",
    "check_client_store",
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


def check_client_store(journal: Journal) -> None:
    """Verify the chain of the journal, then every other table against it. Raises WireFormatError that names the row."""
    replayed = _Replay(journal)
    for row in journal.rows():
        replayed.take(row)
    replayed.check_tables()


class _Replay:
    """Goes through the journal again, and keeps which row wrote last what the other tables have."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._keys: dict[bytes, Row] = {}
        self._enrolments: dict[bytes, Row] = {}
        self._frames: dict[int, Row] = {}

    def take(self, row: Row) -> None:
        match row.kind, row.session, row.round:
            case "enrol", bytes(session), int():
                self._keys[session] = self._enrolments[session] = row
            case "grant", bytes(session), None:
                self._enrolments[session] = row
            case "frame", bytes(session), int(round_number):
                self._keys[session] = row
                self._frames = {
                    number: one
                    for number, one in self._frames.items()
                    if one.session != session or (one.round or 0) >= round_number
                }
                self._frames[row.number] = row
            case "close", bytes(session), int():
                self._keys[session] = row
            case "restore", None, int():
                for one in (self._keys, self._enrolments, self._frames):
                    one.clear()
            case _:
                refuse_altered(
                    f"row {row.number} of the journal is of a kind that this version does not know"
                )

    def check_tables(self) -> None:
        """Check what has to be there once all rows were taken, and that there is nothing else."""
        self._check_keys()
        self._check_enrolments()
        self._check_frames()
        for left in (*self._keys.values(), *self._enrolments.values(), *self._frames.values()):
            refuse_altered(f"what row {left.number} of the journal wrote is missing")

    def _check_keys(self) -> None:
        select = "SELECT session, client, round, changed FROM keys"
        for session, client, round_number, changed in self._journal.connection.execute(select).fetchall():
            row = self._keys.pop(session, None)
            # A round that was ended leaves the key at the next one.
            stands = None if row is None else (row.round or 0) + (row.kind == "close")
            if row is None or (row.number, row.client, stands) != (changed, client, round_number):
                refuse_altered(f"the key of client {client} is not the one that the journal says")
            read_key(self._journal, session)

    def _check_enrolments(self) -> None:
        select = "SELECT session, number, kind, requests FROM enrolments"
        for session, number, kind, requests in self._journal.connection.execute(select).fetchall():
            row = self._enrolments.pop(session, None)
            if row is None or (row.number, row.kind) != (number, kind) or not isinstance(requests, bytes):
                refuse_altered(
                    f"what row {number} of the journal has of an enrolment is not what was written"
                )
            if read_enrolment(self._journal, session).digest != row.digest:
                refuse_altered(
                    f"what row {number} of the journal has of an enrolment is not what was written"
                )

    def _check_frames(self) -> None:
        select = "SELECT number, session, round, purpose FROM frames"
        for number, *found in self._journal.connection.execute(select).fetchall():
            row = self._frames.pop(number, None)
            if row is None or [row.session, row.round, row.purpose] != found:
                refuse_altered(f"there is a frame that row {number} of the journal has not, or no longer")
            read_frame(self._journal, *found)


class ClientStore(StoreOfClient):
    """The memory of one client, in any number of sessions; the same for every scheme in which clients enrol.

    One frame is made for each session, round, purpose and part: :meth:`encrypt` writes it down, with the key as it
    stands then, before it returns it. Asked again with the same values it returns the same bytes, and with others it
    raises, also in another process after this one was ended at any moment. Rounds only go up, and keys with them.

    A session is named by its public key, which the client has pinned: the store has secrets alone, sealed under its
    key. From an old copy an earlier round's frame could be made again, and what was recorded since be opened: see
    :class:`~shieldfl.authority.store.Store`.
    """

    _layout = LAYOUT
    _kind = b"shieldfl client store 1\0"
    _why_uncopied = "holds a client's secrets and is neither copied nor pickled: open it where it is used"

    def _check_tables(self, journal: Journal) -> None:
        check_client_store(journal)

    def _forget(self, connection: sqlite3.Connection) -> None:
        for table in ("keys", "enrolments", "frames"):
            connection.execute(f"DELETE FROM {table}")

    def enrol(self, public_key: Any, client: int | str, identity: Identity | None = None) -> list[bytes]:
        """Draw what the client will share with each key authority, and return for each the request that says so.

        They are sealed, in the order of the authorities' group: a list of one where there is one. Asked again before
        all have granted it, it returns the same requests again.

        Parameters
        ----------
        public_key : of the session, as the client has pinned it.
        client : a number below 2**31, or a name.
        identity : of the authority, or the group of several, for a public key that was read from a frame alone.

        Raises PolicyError where the session has a key here, or had one; KeyMismatchError for the identity of others;
        ParameterError.
        """
        if identity is not None:
            public_key = public_key.with_identity(identity)
        session, authorities = public_key.id, public_key.authorities
        drawn = bytearray(secrets.token_bytes(SECRET_BYTES * len(authorities)))
        shared = [bytes(drawn[start : start + SECRET_BYTES]) for start in range(0, len(drawn), SECRET_BYTES)]
        try:
            key = scheme_of(public_key).ClientKey.of_secret(public_key, client, drawn)
        finally:
            drawn[:] = bytes(len(drawn))
        requests = [
            EnrolmentRequest.of(authority, session, client, secret).to_bytes()
            for authority, secret in zip(authorities, shared, strict=True)
        ]
        granted = [Granted(grant_key(secret, session)) for secret in shared]
        with self._transaction() as journal:
            if was_enrolled(journal, session):
                number, _ = read_key(journal, session)
                found = read_enrolment(journal, session)
                if number == key.client and found.requests:
                    return found.requests
            self._add(journal, key, Enrolment("enrol", requests, granted))
        return requests

    def add_key(self, key: Any) -> None:
        """Take a ``ClientKey`` that was made elsewhere, with what it was granted; use it nowhere else from now on.

        Raises PolicyError where its session has a key here, or had one.
        """
        try:
            granted = [Granted(b"", opening_key) for opening_key in key.opening_keys]
        except PolicyError:
            granted = []
        with self._transaction() as journal:
            self._add(journal, key, Enrolment("enrol", [], granted))

    def _add(self, journal: Journal, key: Any, enrolment: Enrolment) -> None:
        session = key.public_key.id
        if was_enrolled(journal, session):
            raise PolicyError(
                "the session has a key in this store, or had one before a backup was restored: enrol in a new session"
            )
        digest = enrolment.digest
        row = journal.append("enrol", session, client=key.client, round_number=key.round, digest=digest)
        write_key(journal, row, session, key.client, _stored(key))
        write_enrolment(journal, row, session, enrolment)

    def take_grant(self, public_key: Any, grant: Buffer) -> None:
        """Take what a key authority gave for the enrolment: what lets this client open its answers.

        Raises KeyMismatchError for a grant of another client or session; PolicyError without an enrolment here, as
        where the key came by :meth:`add_key`.
        """
        session = public_key.id
        with self._transaction() as journal:
            found = read_enrolment(journal, session)
            granted, index = list(found.granted), found.index_of(session, grant)
            if granted[index].opening_key:
                return
            opening_key = read_grant(granted[index].reads_grants, session, grant)
            granted[index] = granted[index]._replace(opening_key=opening_key)
            is_last = all(one.opening_key for one in granted)
            enrolment = Enrolment("grant", [] if is_last else found.requests, granted)
            row = journal.append("grant", session, digest=enrolment.digest)
            write_enrolment(journal, row, session, enrolment)

    def opening_keys(self, public_key: Any) -> list[bytes]:
        """Return what opens the session's answers, 32 bytes for each authority; secret.

        Raises PolicyError before all have granted it.
        """
        with self._transaction() as journal:
            found = read_enrolment(journal, public_key.id)
        if not found.granted or not all(one.opening_key for one in found.granted):
            raise PolicyError("this client was granted no answers: take the key authority's grant first")
        return [one.opening_key for one in found.granted]

    def open(
        self, public_key: Any, total: Any, answers: Answers, *, threads: int | None = None
    ) -> NDArray[np.float64]:
        """Open a total with the key authority's answer, or those of all: float64 (count,), by ascending position.

        Raises PolicyError before all have granted it, and as :func:`open_answered` does.
        """
        granted: Any = _Granted(public_key, self.opening_keys(public_key))
        return open_answered(total, answers, granted, threads=threads)

    def round(self, public_key: Any) -> int:
        """Return the round that the session's key stands at: of earlier ones no frame is made any more."""
        with self._transaction() as journal:
            return read_key(journal, public_key.id)[1].round

    def encrypt(
        self,
        public_key: Any,
        update: Update,
        mask: Mask | None = None,
        weight: float | None = None,
        *,
        round: int,
        purpose: str = "update",
        part: int = 0,
        clip: bool = False,
        repeats: bool = False,
        threads: int | None = None,
    ) -> bytes:
        """Return the one frame of a round, purpose and part: made now, and on the disk, or when it was first asked for.

        Parameters
        ----------
        public_key : of the session.
        update, mask, weight, clip : as for the scheme's ``Encryptor``.
        round : the round that the frame is good for; the key moves on to it.
        purpose, part : what is encrypted, and which part of it, below 2**32.
        repeats : whether the same values may have been encrypted in another round: for what does not depend on data, or
            may be alike by nature, such as votes. Where all others send the same as well, the difference of two sums
            is a single client's values. The same are those that are all equal as float32, in the same order, whatever
            purpose, part or weight they are for; of values that are nearly the same nothing is noticed.
        threads : None for as many as the work is worth.

        Raises PolicyError for other values, mask or weight than the frame that there is was made of; for a round that
        is over, or more than 2**16 ahead; for values that were encrypted in another round, unless they ``repeats``; and
        without a key of the session. DataError for a disk that fails. Then there is no frame, and no key has moved.
        ParameterError for a purpose that is no text of 1 to 255 bytes, and for other types than these. Raises as the
        ``Encryptor`` does for what cannot be encrypted.
        """
        session, number = public_key.id, as_number(round, "round")
        scheme, named = scheme_of(public_key), _named(purpose, part)
        values = as_update(update)
        if not isinstance(mask, Mask | None) or not isinstance(clip, bool | np.bool_):
            raise ParameterError("mask must be a Mask or None, and clip True or False")
        chosen = values if mask is None else mask.gather(values)
        how = hashlib.sha256(b"" if mask is None else mask.to_bytes())
        how.update(b"" if weight is None else struct.pack("<d", as_real(weight, "weight")))
        how.update(chosen.data if chosen.dtype == np.float64 else b"")
        digest = hashlib.sha256(_as_float32(chosen).data).digest()
        with self._transaction() as journal:
            of_values = journal.keys.mac("values", session, digest)
            made_of = journal.keys.mac("frame", of_values, how.digest(), int(clip))
            found = read_frame(journal, session, number, named)
            if found is not None:
                if found.made_of != made_of:
                    raise PolicyError(
                        f"a frame of round {number} was made for this purpose and part from something else, and may "
                        "have been sent: send that again, or begin a later round"
                    )
                return found.frame
            if not repeats and was_encrypted(journal, session, number, of_values):
                raise PolicyError(
                    "these values were encrypted in another round: in two sums they could be told from the others'. "
                    "Train on, and send another update"
                )
            client, held = read_key(journal, session)
            key = scheme.ClientKey(public_key, client, held.key, held.round)
            encryptor = scheme.Encryptor(key, threads, purpose=purpose, part=part)
            frame: bytes = encryptor.encrypt(values, mask, weight, number, clip=clip).to_bytes()
            row = journal.append(
                "frame", session, client=client, round_number=number, purpose=named, digest=of_values
            )
            drop_frames(journal, session, number)
            write_frame(journal, row, session, number, named, Frame(frame, made_of))
            write_key(journal, row, session, client, _stored(key))
        return frame

    def frame(self, public_key: Any, *, round: int, purpose: str = "update", part: int = 0) -> bytes | None:
        """Return the frame that was made, to be sent again; None for none, or one before the newest round with any."""
        named, number = _named(purpose, part), as_number(round, "round")
        with self._transaction() as journal:
            found = read_frame(journal, public_key.id, number, named)
            return None if found is None else found.frame

    def close_round(self, public_key: Any, round: int) -> None:
        """End a round, and all below it: their key is overwritten, and what was not sent is not sent any more.

        The frames that were made stay to be sent again, until one of a later round is made. Raises PolicyError without
        a key of the session, and for a round more than 2**16 ahead.
        """
        session, number = public_key.id, as_number(round, "round")
        with self._transaction() as journal:
            client, held = read_key(journal, session)
            if held.round > number:
                return
            key = scheme_of(public_key).ClientKey(public_key, client, held.key, held.round)
            key.advance_to(number + 1)
            row = journal.append("close", session, client=client, round_number=number)
            write_key(journal, row, session, client, _stored(key))


class _Granted(NamedTuple):
    """What of a client's key opens answers."""

    public_key: Any
    opening_keys: list[bytes]


def _named(purpose: str, part: int) -> str:
    return f"{checked_purpose(purpose)}/{as_unsigned(part, 'part')}"


def _as_float32(values: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float32]:
    """Return what the same values are alike in: another precision or sign of zero makes no other values of them."""
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(np.float32, copy=False) + np.float32(0)


def _stored(key: Any) -> ClientKey:
    secret = key.export_secret()
    stored = ClientKey(key.round, bytes(secret))
    secret[:] = bytes(len(secret))
    return stored
