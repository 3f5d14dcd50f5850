"""The journal of a store: every change in order, chained by MACs; the keys for them and for secrets."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import sqlite3
import struct
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, NoReturn

from shieldfl.errors import KeyMismatchError, ParameterError, ShieldError, WireFormatError
from shieldfl.installing import how_to_install
from shieldfl.stateful import Uncopied

__all__ = [
    "KEY_BYTES",
    "Journal",
    "Position",
    "Row",
    "StoreKeys",
    "Value",
    "canonical",
    "digest_of",
    "digest_of_list",
    "refuse_altered",
]

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
