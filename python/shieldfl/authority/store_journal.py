"""The journal of a store: every change in order, chained by MACs; the keys for them and for secrets."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from shieldfl.array_view import as_unsigned
from shieldfl.build_info import how_to_install
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, ShieldError, WireFormatError
from shieldfl.stateful import Uncopied

KEY_BYTES = 32
_SALT_BYTES = 32
_TOKEN_BYTES = 16
_NONCE_BYTES = 12
_DOMAIN = b"shieldfl authority store 1\0"
_NO_MAC = bytes(32)
_RESTORE = "Restore the newest backup with restored=True"

Value = int | str | bytes | None


def refuse_altered(what: str) -> NoReturn:
    """Raise WireFormatError for a store whose tables are not what its journal says."""
    raise WireFormatError(f"the store was altered: {what}. {_RESTORE}")


def canonical(*values: Value) -> bytes:
    """Return what no other values give: of each its type, length and content. Raises WireFormatError."""
    parts = []
    for value in values:
        match value:
            case None:
                parts.append(b"n")
            case int():
                parts.append(b"i" + struct.pack("<q", value))
            case str():
                encoded = value.encode()
                parts.append(b"s" + struct.pack("<Q", len(encoded)) + encoded)
            case bytes():
                parts.append(b"b" + struct.pack("<Q", len(value)) + value)
            case _:
                raise WireFormatError(f"the store has a value of a type that it never writes. {_RESTORE}")
    return b"".join(parts)


def digest_of(*values: Value) -> bytes:
    """Return the SHA-256, 32 bytes, of values in canonical bytes."""
    return hashlib.sha256(canonical(*values)).digest()


def digest_of_list(total_digest: bytes, participants: Iterable[tuple[int, bytes]]) -> bytes:
    """Return the SHA-256 of an answered set: the total's digest, then (client, frame id) by ascending client."""
    digest = hashlib.sha256(canonical(total_digest))
    for client, frame_id in participants:
        digest.update(canonical(client, frame_id))
    return digest.digest()


class StoreKeys(Uncopied):
    """Seals and authenticates for one store, under keys that HKDF derives from the key file's key.

    Raises ParameterError for a key of another length, and ShieldError where ``cryptography`` is missing.
    """

    _why_uncopied = "hold secret keys and are neither copied nor pickled"

    def __init__(self, key: bytes, authority_id: bytes, salt: bytes | None = None) -> None:
        if not isinstance(key, bytes) or len(key) != KEY_BYTES:
            raise ParameterError(f"a store's key has {KEY_BYTES} random bytes")
        try:
            from cryptography.hazmat.primitives.hashes import SHA256
            from cryptography.hazmat.primitives.kdf.hkdf import HKDF
        except ImportError as error:
            raise ShieldError(
                f"the store needs the package 'cryptography': {how_to_install('keys')}"
            ) from error
        self.authority_id = authority_id
        self.salt = secrets.token_bytes(_SALT_BYTES) if salt is None else salt
        kdf = HKDF(SHA256(), 2 * KEY_BYTES, salt=self.salt, info=_DOMAIN)
        derived = kdf.derive(key)
        self._sealing, self._authenticating = derived[:KEY_BYTES], derived[KEY_BYTES:]
        self._newest: tuple[bytes, Any] = b"", None

    def mac(self, what: str, *values: Value) -> bytes:
        """Return the HMAC-SHA-256, 32 bytes, of values that are the ``what``."""
        return hmac.digest(self._authenticating, canonical(what, *values), "sha256")

    def seal(self, row: Row, secret: bytes, *owner: Value) -> bytes:
        """Seal a secret for one place (``owner``) and one journal row: nonce, then AES-256-GCM with its tag."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + bytes(self._cipher(row).encrypt(nonce, secret, canonical(*owner)))

    def unseal(self, row: Row, sealed: bytes | None, *owner: Value) -> bytes:
        """Return what :meth:`seal` got. Raises WireFormatError for what was sealed elsewhere, or altered."""
        from cryptography.exceptions import InvalidTag

        try:
            if isinstance(sealed, bytes) and len(sealed) > _NONCE_BYTES:
                cipher, nonce = self._cipher(row), sealed[:_NONCE_BYTES]
                return bytes(cipher.decrypt(nonce, sealed[_NONCE_BYTES:], canonical(*owner)))
        except InvalidTag:
            pass
        raise WireFormatError(
            f"the secret that row {row.number} of the journal wrote was altered, removed, or comes from another copy "
            f"of the store. {_RESTORE}"
        )

    def _cipher(self, row: Row) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        # Of the row's own random token, so that what an attempt wrote that was never committed opens in no later row,
        # and no key seals more than one transaction: random nonces would not do for any number of them.
        if self._newest[0] != row.token:
            self._newest = row.token, AESGCM(hmac.digest(self._sealing, canonical(row.token), "sha256"))
        return self._newest[1]


class Position(NamedTuple):
    """How far a store has come: of two copies of one the greater is the newer."""

    epoch: int
    rows: int


class Row(NamedTuple):
    """One change, of a kind that its store's check knows, such as "enrol" or "restore"; None is what it has not."""

    number: int
    kind: str
    session: bytes | None
    client: int | None
    round: int | None
    purpose: str | None
    digest: bytes | None
    """Of what the row's kind writes elsewhere, by which that is told from another one."""
    token: bytes
    mac: bytes


class Journal:
    """The journal and its head within one transaction. Raises KeyMismatchError and WireFormatError, see :meth:`rows`.

    Parameters
    ----------
    connection : to the file, in a transaction.
    keys : of the store.
    """

    def __init__(self, connection: sqlite3.Connection, keys: StoreKeys) -> None:
        self.connection = connection
        self.keys = keys
        self.epoch, rows, self._last_mac, self._openings, mac = self._read_head()
        self.number: int = rows
        """Of the newest row."""
        if not hmac.compare_digest(self._head_mac(), bytes(mac)):
            raise WireFormatError(
                "the head of the store, which says how many rows the journal has, was altered, or comes from another "
                f"store. {_RESTORE}"
            )

    @staticmethod
    def begin(connection: sqlite3.Connection, keys: StoreKeys) -> None:
        """Write the head of a store in which nothing has happened yet."""
        proof = keys.mac("proof", keys.authority_id, keys.salt)
        mac = keys.mac("head", 0, 0, _NO_MAC, 0)
        head = (keys.authority_id, keys.salt, proof, 0, 0, _NO_MAC, 0, mac)
        connection.execute("INSERT INTO head VALUES (?, ?, ?, ?, ?, ?, ?, ?)", head)

    @staticmethod
    def keys_of(connection: sqlite3.Connection, key: bytes, authority_id: bytes) -> StoreKeys:
        """Return a store's keys. Raises KeyMismatchError for another authority's store, or another key's."""
        heads = connection.execute("SELECT authority_id, salt, proof FROM head").fetchall()
        if len(heads) != 1 or not all(isinstance(value, bytes) for value in heads[0]):
            raise WireFormatError(f"the head of the store was removed or altered. {_RESTORE}")
        owner, salt, proof = heads[0]
        if owner != authority_id:
            raise KeyMismatchError(
                "this is the store of another authority, or of a client: open the file that belongs to this one"
            )
        keys = StoreKeys(key, authority_id, salt)
        if not hmac.compare_digest(keys.mac("proof", authority_id, salt), proof):
            raise KeyMismatchError("the store was made under another key, or its first row was altered")
        return keys

    def _read_head(self) -> tuple[int, int, bytes, int, bytes]:
        select = "SELECT epoch, rows, last_mac, openings, mac FROM head"
        heads = self.connection.execute(select).fetchall()
        if len(heads) != 1 or [type(value) for value in heads[0]] != [int, int, bytes, int, bytes]:
            raise WireFormatError(f"the head of the store was removed or altered. {_RESTORE}")
        epoch, rows, last_mac, openings, mac = heads[0]
        return epoch, rows, last_mac, openings, mac

    def _head_mac(self) -> bytes:
        return self.keys.mac("head", self.epoch, self.number, self._last_mac, self._openings)

    def _write_head(self) -> None:
        head = (self.epoch, self.number, self._last_mac, self._openings, self._head_mac())
        update = "UPDATE head SET epoch = ?, rows = ?, last_mac = ?, openings = ?, mac = ?"
        self.connection.execute(update, head)

    def count_opening(self) -> None:
        """Write something: what was read before is on the disk for good when this is.

        After a commit that failed, what it wrote may be in the memory of the machine, be read from there, and never
        get to the disk, though later syncs succeed.
        """
        self._openings += 1
        self._write_head()

    @property
    def position(self) -> Position:
        """How far the store has come."""
        return Position(self.epoch, self.number)

    def append(
        self,
        kind: str,
        session: bytes | None = None,
        *,
        client: int | None = None,
        round_number: int | None = None,
        purpose: str | None = None,
        digest: bytes | None = None,
    ) -> Row:
        """Write a row and, with it, the head. A row of the kind "restore" begins the epoch ``round_number``."""
        token = secrets.token_bytes(_TOKEN_BYTES)
        values = (self.number + 1, kind, session, client, round_number, purpose, digest, token)
        row = Row(*values, mac=self.keys.mac("row", self._last_mac, *values))
        self.connection.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        self.number, self._last_mac = row.number, row.mac
        if kind == "restore":
            self.epoch = round_number or 0
        self._write_head()
        return row

    def row(self, number: int) -> Row:
        """Return one row, which :meth:`rows` has verified when the store was opened."""
        found = self.connection.execute("SELECT * FROM journal WHERE number = ?", (number,)).fetchone()
        if found is None:
            raise WireFormatError(f"row {number} of the journal is missing")
        return Row(*found)

    def rows(self) -> Iterator[Row]:
        """Return every row in order, each verified against the one before and the last one against the head.

        Raises WireFormatError that names the row that was removed, altered, exchanged or added.
        """
        last_mac, number = _NO_MAC, 0
        for values in self.connection.execute("SELECT * FROM journal ORDER BY number"):
            number += 1
            row = Row(*values)
            if row.number != number or number > self.number:
                which = f"row {number} is missing" if row.number > number else f"row {row.number} was added"
                raise WireFormatError(f"the journal was altered: {which}. {_RESTORE}")
            expected = self.keys.mac("row", last_mac, *row[:-1])
            if not isinstance(row.mac, bytes) or not hmac.compare_digest(expected, row.mac):
                raise WireFormatError(
                    f"the journal was altered: row {number} is not what was written. {_RESTORE}"
                )
            last_mac = row.mac
            yield row
        if number != self.number:
            raise WireFormatError(f"the journal was altered: row {number + 1} is missing. {_RESTORE}")
        if last_mac != self._last_mac:
            raise WireFormatError(f"row {number} of the journal is another copy's than the head. {_RESTORE}")


MOST_ROUNDS_AHEAD = 2**16
"""A round further than this above the oldest that is open is refused: one request would end all rounds between."""

ENROLMENT_HAS_ENDED = (
    "enrolment has ended, and the key that requests are sealed to was erased: begin a session of a new key authority "
    "for clients that come now"
)

OPENER_HAS_GRANT = (
    "an aggregator was granted the answers of this session before: go on from its state, or begin "
    "another session"
)

OWNER_BYTES = 32
"""Of what says whose a store is."""

SESSION_BYTES = 16
_FRAME_ID_BYTES = 16
DIGEST_BYTES = 32
_MOST_PURPOSE_BYTES = 255
_LEAST_CLIENTS = 2


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class ClientKey(Uncopied):
    """A client's key, 32 bytes, of which the keys of ``round`` and later ones come, and of no earlier one."""

    _why_uncopied = "holds a secret key and is neither copied nor pickled: take it where it is used"

    round: int
    key: bytes

    def __post_init__(self) -> None:
        object.__setattr__(self, "round", as_number(self.round, "a key's round"))

    def __repr__(self) -> str:
        return f"ClientKey(round={self.round})"


Keys = Mapping[int, ClientKey]
"""By client."""


class Grant(NamedTuple):
    """What a client gets for its enrolment, and what it asked with; who asks with the same again gets the same."""

    grant: bytes
    request_digest: bytes | None = None
    """SHA-256 of the request, 32 bytes; None where it was enrolled without one."""


Grants = Mapping[int, Grant]
"""By client."""


class SessionRules(NamedTuple):
    """What is settled when a session begins, and never changes.

    ``window``: how many rounds below the newest answered one may still be answered. ``answers_kept``: for how many
    rounds, the newest included, answers are kept, more than ``window``; what is asked for again later is refused.
    """

    manifest_digest: bytes
    min_clients: int
    window: int
    answers_kept: int


def as_number(value: Any, what: str) -> int:
    """Check a number that SQLite can hold: whole, not negative, below 2^63. Raises ParameterError."""
    number = as_unsigned(value, what)
    if number >= 2**63:
        raise ParameterError(f"{what} must be below 2^63")
    return number


def as_bytes(value: Any, length: int, what: str) -> bytes:
    """Check that ``value`` is so many bytes. Raises ParameterError."""
    if not isinstance(value, bytes) or len(value) != length:
        raise ParameterError(f"{what} must be {length} bytes")
    return value


def checked_purpose(purpose: Any) -> str:
    """Return what names a purpose: a text of 1 to 255 bytes. Raises ParameterError."""
    try:
        length = len(purpose.encode())
    except (AttributeError, UnicodeEncodeError):
        length = 0
    if not isinstance(purpose, str) or not 0 < length <= _MOST_PURPOSE_BYTES:
        raise ParameterError(f"purpose must be a text of 1 to {_MOST_PURPOSE_BYTES} bytes")
    return purpose


def checked_rules(rules: SessionRules) -> SessionRules:
    """Return the rules if a session can have them. Raises ParameterError."""
    if not isinstance(rules, SessionRules):
        raise ParameterError(f"rules must be SessionRules, not {type(rules).__name__}")
    as_bytes(rules.manifest_digest, DIGEST_BYTES, "manifest_digest")
    min_clients, window, answers_kept = (
        as_number(getattr(rules, name), name) for name in ("min_clients", "window", "answers_kept")
    )
    if min_clients < _LEAST_CLIENTS:
        raise ParameterError(
            f"min_clients must be at least {_LEAST_CLIENTS}: the sum over one client is its own"
        )
    if window > MOST_ROUNDS_AHEAD:
        raise ParameterError(f"window must be at most {MOST_ROUNDS_AHEAD}")
    if answers_kept <= window:
        raise ParameterError(
            "answers_kept must be more than window: else what may be answered could not be repeated"
        )
    return SessionRules(rules.manifest_digest, min_clients, window, answers_kept)


class Request(NamedTuple):
    """A checked request; the list in the order of clients."""

    session: bytes
    round: int
    purpose: str
    participants: list[tuple[int, bytes]]
    total_digest: bytes

    @classmethod
    def checked(
        cls, session: Any, round_number: Any, purpose: Any, participants: Any, total_digest: Any
    ) -> Request:
        """Check a request and put its list in order. Raises ParameterError; PolicyError for a list with duplicates."""
        try:
            pairs = [(client, frame_id) for client, frame_id in participants]
        except (TypeError, ValueError):
            raise ParameterError("participants must be pairs of a client's number and a frame id") from None
        listed = sorted(
            (as_number(client, "a client's number"), as_bytes(frame_id, _FRAME_ID_BYTES, "a frame id"))
            for client, frame_id in pairs
        )
        for column, what in ((0, "a client"), (1, "a frame")):
            if len({entry[column] for entry in listed}) < len(listed):
                raise PolicyError(f"the list names {what} twice: each counts once. Start a new round")
        named = checked_purpose(purpose)
        return cls(
            as_bytes(session, SESSION_BYTES, "session"),
            as_number(round_number, "round_number"),
            named,
            listed,
            as_bytes(total_digest, DIGEST_BYTES, "total_digest"),
        )

    @property
    def occasion(self) -> tuple[bytes, int, str]:
        """What a client is answered for once."""
        return self.session, self.round, self.purpose

    @property
    def clients(self) -> list[int]:
        """Those that the list names."""
        return [client for client, _ in self.participants]


def checked_keys(keys: Any, clients: Iterable[int] | None = None) -> dict[int, ClientKey]:
    """Return keys by client, in the order of clients: of just these, if given. Raises ParameterError."""
    if not isinstance(keys, Mapping) or not all(isinstance(key, ClientKey) for key in keys.values()):
        raise ParameterError("keys must be a mapping from clients' numbers to ClientKey")
    try:
        ordered = sorted(keys)
    except TypeError:
        raise ParameterError("clients' numbers must be whole numbers") from None
    checked = {as_number(client, "a client's number"): keys[client] for client in ordered}
    for key in checked.values():
        as_bytes(key.key, KEY_BYTES, "a client's key")
    if clients is not None and checked.keys() != set(clients):
        raise ParameterError("there must be a key for each client that a key was given for, and no other")
    return checked


def checked_grant(grant: Any) -> Grant:
    """Return what is a grant. Raises ParameterError."""
    if not isinstance(grant, Grant) or not isinstance(grant.grant, bytes):
        raise ParameterError("a grant must be a Grant of bytes")
    if grant.request_digest is not None:
        as_bytes(grant.request_digest, DIGEST_BYTES, "request_digest")
    return grant


def checked_sessions(sessions: Any) -> list[bytes]:
    """Return sessions, 16 bytes each. Raises ParameterError."""
    try:
        return [as_bytes(session, SESSION_BYTES, "session") for session in sessions]
    except TypeError:
        raise ParameterError("sessions must be some of 16 bytes each") from None


def checked_enrolments(
    keys: Any, grants: Any = None
) -> dict[bytes, dict[int, tuple[ClientKey, Grant | None]]]:
    """Return by session and client its key, and its grant if there is one. Raises ParameterError."""
    granted = {} if grants is None else grants
    if not all(isinstance(by_session, Mapping) for by_session in (keys, granted)):
        raise ParameterError("keys and grants must be mappings from sessions")
    if not granted.keys() <= keys.keys():
        raise ParameterError("there are grants for a session in which nobody is enrolled with them")
    checked = {}
    for session in checked_sessions(keys):
        own, its_grants = checked_keys(keys[session]), granted.get(session, {})
        if not isinstance(its_grants, Mapping):
            raise ParameterError("grants must be a mapping from clients' numbers to Grant")
        if not its_grants.keys() <= own.keys():
            raise ParameterError("a grant is for a client that is enrolled with it")
        given = {client: checked_grant(grant) for client, grant in its_grants.items()}
        checked[session] = {client: (key, given.get(client)) for client, key in own.items()}
    return checked
