"""Basis of every store: one process's SQLite file of sealed records, verified whenever it is opened.

Each record is sealed for its place. The sealed head counts the records of each kind, and sums a secret
function of them. So nobody can alter, remove, add or put back a record unnoticed.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import hmac
import importlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, NoReturn, Self, TypeVar
from urllib.parse import quote

from shieldfl.array_view import as_bytes, as_unsigned
from shieldfl.authority.private_file import (
    DAMAGED,
    NO_PATH,
    HeldFile,
    KeptFiles,
    remove_store_file,
    sqlite_errors_in_our_words,
    sync_folder,
)
from shieldfl.build_info import cryptographic
from shieldfl.errors import (
    DataError,
    KeyMismatchError,
    ParameterError,
    PolicyError,
    WireFormatError,
)
from shieldfl.stateful import Uncopied

KEY_BYTES = OWNER_BYTES = DIGEST_BYTES = 32
SESSION_BYTES = 16
_TOKEN_BYTES = _TAG_BYTES = 16
_SALT_BYTES = _SUM_BYTES = 32
_NONCE_BYTES = 12
_MOST_NAME_BYTES = 255

MEMORY = Path(":memory:")  # in place of a path, for a store that ends with its process

_SCHEMA = (
    "CREATE TABLE head (owner BLOB, salt BLOB, proof BLOB, sealed BLOB)",
    "CREATE TABLE records (kind TEXT, session BLOB, round INTEGER, name TEXT, client INTEGER, "
    "number INTEGER, sealed BLOB,\n    PRIMARY KEY (kind, session, round, name, client)) WITHOUT ROWID",
)
_PRAGMAS = (
    # The lock lasts from the first use to the end of the process, so that no second writer can enter.
    "locking_mode=EXCLUSIVE",
    # The commit cuts the journal to nothing: in an exclusively held file the default would overwrite only the
    # journal's first bytes, and leave old pages behind them.
    "journal_mode=TRUNCATE",
    "synchronous=EXTRA",
    "fullfsync=ON",
    "secure_delete=ON",
    "temp_store=MEMORY",
    "trusted_schema=OFF",
    "cell_size_check=ON",
    "mmap_size=0",
    "cache_size=-2000",  # KiB; without it the file decides
    "cache_spill=OFF",  # what is undone was never in the file
)
_PAGES = slice(28, 32), slice(16, 18)  # number of pages, and bytes of a page, in a database's head
_ASKED_WITHIN = "the store was asked from within a computation that it had called: ask before or after it"

T = TypeVar("T")


@functools.cache
def _msgpack() -> Any:
    return importlib.import_module("msgspec.msgpack")


def encoded(value: Any) -> bytes:
    """Return MessagePack: different values, or values of different types, have different bytes."""
    return bytes(_msgpack().encode(value))


def decoded(data: bytes, form: type[T]) -> T:
    value: T = _msgpack().decode(data, type=form)
    return value


def as_number(value: Any, what: str) -> int:
    """Return a number that SQLite can hold: whole, not negative, below 2^63. Raises ParameterError."""
    return as_unsigned(value, what, 63)


def refuse_altered(what: str) -> NoReturn:
    raise WireFormatError(f"the store was altered: {what}. Restore the newest backup with restored=True")


class StoreKeys(Uncopied):
    """Keys that seal and authenticate the records of one store."""

    _why_uncopied = "hold secret keys and are neither copied nor pickled"

    def __init__(self, key: bytes, owner: bytes, salt: bytes) -> None:
        aes = cryptographic("ciphers.aead", "stores").AESGCM
        hkdf, sha256 = cryptographic("kdf.hkdf", "stores").HKDF, cryptographic("hashes", "stores").SHA256
        derived = hkdf(sha256(), 3 * KEY_BYTES, salt=salt, info=b"shieldfl store 1\0").derive(key)
        sealing, self._authenticating = derived[:KEY_BYTES], derived[KEY_BYTES:-KEY_BYTES]
        self._summing = hashlib.blake2b(key=derived[-KEY_BYTES:], digest_size=_SUM_BYTES)

        # Each transaction draws a token, so no key seals two, even if one is interrupted and tried again.
        @functools.lru_cache(maxsize=4)
        def cipher(token: bytes) -> Any:
            return aes(hmac.digest(sealing, token, "sha256"))

        self._cipher = cipher
        self.encoded: Callable[[Any], bytes] = _msgpack().encode
        self._invalid: type[Exception] = importlib.import_module("cryptography.exceptions").InvalidTag
        self.proof = self.mac("proof", owner, salt)

    def mac(self, what: str, *values: int | bytes) -> bytes:
        """Return the HMAC-SHA-256, 32 bytes, of values and of what they are."""
        return hmac.digest(self._authenticating, encoded((what, *values)), "sha256")

    def seal(self, token: bytes, number: int, secret: bytes, bound: bytes) -> bytes:
        """Return a transaction's token, then AES-256-GCM with its tag.

        A transaction uses each ``number`` once.
        """
        nonce = number.to_bytes(_NONCE_BYTES, "big")
        return token + bytes(self._cipher(token).encrypt(nonce, secret, bound))

    def unseal(self, number: Any, sealed: Any, bound: bytes, what: Place | str) -> bytes:
        """Return what :meth:`seal` got. Raises WireFormatError if it was sealed elsewhere, or altered."""
        try:
            nonce = number.to_bytes(_NONCE_BYTES, "big")
            return bytes(self._cipher(sealed[:_TOKEN_BYTES]).decrypt(nonce, sealed[_TOKEN_BYTES:], bound))
        except (self._invalid, TypeError, AttributeError, OverflowError, ValueError):
            refuse_altered(f"{what} is not what was written")

    def summand(self, bound: bytes, sealed: bytes) -> int:
        """Return a sealed record's summand in the sum of its kind; only holders of the key know it."""
        digest = self._summing.copy()
        # Token and tag stand for the whole record, which was unsealed before, or will be.
        digest.update(bound + sealed[:_TOKEN_BYTES] + sealed[-_TAG_BYTES:])
        return int.from_bytes(digest.digest(), "big")


class Position(NamedTuple):
    """How far a store has come, in rows ever written: the greater of two copies is the newer one."""

    epoch: int
    rows: int


class Place(NamedTuple):
    """The place of a record; each place has one record at most."""

    kind: str
    session: bytes = b""
    round: int = -1
    name: str = ""
    client: int = -1

    def __str__(self) -> str:
        of = f" of client {self.client}" * (self.client != -1)
        of += f" of round {self.round}" * (self.round != -1)
        return f"the record {self.kind!r}{of}" + f" at {self.name!r}" * bool(self.name)


def placed(kind: str, session: Any, round_number: Any = None, name: Any = ..., client: Any = None) -> Place:
    """Return a place, once its values have the right types and lengths. Raises ParameterError."""
    try:
        length = 1 if name is ... else len(name.encode())
    except (AttributeError, UnicodeEncodeError):
        length = 0
    if not 0 < length <= _MOST_NAME_BYTES:
        raise ParameterError(f"purpose must be a text of 1 to {_MOST_NAME_BYTES} bytes")
    return Place(
        kind,
        as_bytes(session, SESSION_BYTES, "session"),
        -1 if round_number is None else as_number(round_number, "round_number"),
        "" if name is ... else name,
        -1 if client is None else as_number(client, "a client's number"),
    )


_HEAD = b"head"
_NO_SUM = 0, bytes(_SUM_BYTES)
_Head = tuple[int, int, dict[str, tuple[int, bytes]]]
AT_PLACE = "kind = ? AND session = ? AND round = ? AND name = ? AND client = ?"


class Transaction:
    """Reads and changes records. Raises WireFormatError for a record that is not as it was written."""

    def __init__(self, store: Store, connection: sqlite3.Connection) -> None:
        assert store._keys is not None
        self._execute = connection.execute
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self.keys = keys = store._keys
        self._rewritten, self._newest = store._rewritten, store._newest
        self.written: dict[Place, int] = {}
        """Numbers of what was written here, or verified, of the kinds that are written over."""
        heads = self._execute("SELECT sealed FROM head").fetchall()
        content = keys.unseal(0, heads[0][0] if len(heads) == 1 else None, _HEAD, "its head")
        head: _Head = _msgpack().decode(content, type=_Head)
        self.epoch, self.number, self.sums = head
        """Number of records, and the sum of their summands, by kind."""

    def write_head(self) -> None:
        content = self.keys.encoded((self.epoch, self.number, self.sums))
        sealed = self.keys.seal(self._token, 0, content, _HEAD)
        self._execute("UPDATE head SET sealed = ?", (sealed,))

    def _rows(
        self, condition: str, values: tuple[Any, ...] = ()
    ) -> Iterator[tuple[Place, int, bytes, bytes]]:
        """Yield place, number, what is bound to it, and sealed content of each record."""
        for *at, number, sealed in self._execute(f"SELECT * FROM records WHERE {condition}", values):
            yield Place(*at), number, self.keys.encoded((*at, number)), sealed

    def find(self, condition: str, *values: Any, taken: bool = False) -> Iterator[tuple[Place, int, bytes]]:
        """Yield place, number and content of each record that fits a condition in SQL.

        Records that are ``taken`` have to be put again.
        """
        for place, number, bound, sealed in [*self._rows(condition, values)]:
            content = self.keys.unseal(number, sealed, bound, place)
            if number < self.written.get(place, self._newest.get(place, 0)):
                refuse_altered(f"{place} is an earlier one, put back while the store was held here")
            yield place, number, content
            if taken:
                self._count(place, bound, sealed, -1)

    def get(self, place: Place) -> bytes | None:
        for _, _, content in self.find(AT_PLACE, *place):
            return content
        self.check_none_missing([place])
        return None

    def known(self, kind: str, session: bytes | None = None) -> list[Place]:
        """Return the places of a kind that is written over, of one session or of all."""
        places = {**self._newest, **self.written}
        return [at for at in places if at.kind == kind and session in (None, at.session)]

    def check_none_missing(self, places: Iterable[Place]) -> None:
        """Raise WireFormatError if one of these places, which were found empty, had a record."""
        for place in places:
            if place in self._newest or place in self.written:
                refuse_altered(f"{place} is missing")

    def put(self, place: Place, content: bytes, *, taken: bool = False) -> int:
        """Write a record, over one that is there; return its number, above all earlier numbers."""
        is_there = taken or self._count_out(AT_PLACE, place)
        self.number += 1
        bound = self.keys.encoded((*place, self.number))
        sealed = self.keys.seal(self._token, self.number, content, bound)
        if is_there:
            # This overwrites a record in place where its length stays; REPLACE would delete it first.
            update = f"UPDATE records SET number = ?, sealed = ? WHERE {AT_PLACE}"
            self._execute(update, (self.number, sealed, *place))
        else:
            self.check_none_missing([place])
            self._execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?)", (*place, self.number, sealed))
        self._count(place, bound, sealed, 1)
        self._note(place, self.number)
        return self.number

    def _note(self, place: Place, number: int) -> None:
        if place.kind in self._rewritten:
            self.written[place] = number

    def delete(self, condition: str, *values: Any) -> None:
        """Delete the records that fit a condition in SQL, and overwrite them."""
        if self._count_out(condition, values):
            self.number += 1
            self._execute(f"DELETE FROM records WHERE {condition}", values)

    def _count_out(self, condition: str, values: tuple[Any, ...]) -> int:
        rows = [*self._rows(condition, values)]
        for place, _, bound, sealed in rows:
            self._count(place, bound, sealed, -1)
        return len(rows)

    def _count(self, place: Place, bound: bytes, sealed: bytes, more: int) -> None:
        count, before = self.sums.get(place.kind, _NO_SUM)
        total = int.from_bytes(before, "big") + more * self.keys.summand(bound, sealed)
        total %= 2 ** (8 * _SUM_BYTES)
        self.sums[place.kind] = count + more, total.to_bytes(_SUM_BYTES, "big")

    def verify(self, kinds: set[str]) -> None:
        """Read every record, and compare all of them with the head.

        Raises WireFormatError that says what is wrong.
        """
        told, self.sums = self.sums, {}
        for place, number, bound, sealed in self._rows("TRUE"):
            self.keys.unseal(number, sealed, bound, place)
            if place.kind not in kinds:
                raise WireFormatError(f"{place} is of a kind that this version does not know")
            self._count(place, bound, sealed, 1)
            self._note(place, number)
        for kind in sorted(told.keys() | self.sums.keys()):
            (right, total), (count, own) = told.get(kind, _NO_SUM), self.sums.get(kind, _NO_SUM)
            if count != right:
                what = f"{right - count} missing" if count < right else f"{count - right} added"
                refuse_altered(f"its records of kind {kind!r} do not match its head: {what}")
            if not hmac.compare_digest(own, total):
                refuse_altered(f"a record of kind {kind!r} is an earlier one, or from another copy")


def _connected(path: Path) -> sqlite3.Connection:
    # There is no waiting for a lock: its holder keeps this file for good.
    connection = sqlite3.connect(
        str(path) if path is MEMORY else f"file:{quote(str(path.absolute()))}?mode=rw",
        uri=True,
        timeout=0.0,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
    except BaseException:
        connection.close()
        raise
    return connection


def _filled(path: Path, key: bytes, owner: bytes, nothing: str) -> bytes:
    """Write the tables and the head of a new store; return the content of its file."""
    with sqlite_errors_in_our_words(path, nothing), contextlib.closing(_connected(path)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        for statement in _SCHEMA:
            connection.execute(statement)
        salt = secrets.token_bytes(_SALT_BYTES)
        keys = StoreKeys(key, owner, salt)
        sealed = keys.seal(secrets.token_bytes(_TOKEN_BYTES), 0, encoded((0, 0, {})), _HEAD)
        connection.execute("INSERT INTO head VALUES (?, ?, ?, ?)", (owner, salt, keys.proof, sealed))
        connection.execute("COMMIT")
        return bytes(connection.serialize())


class Store(Uncopied):
    """A store in a file, or in the process's memory. Thread-safe; one process at a time.

    Every operation is one transaction. If it raises an error, it has returned nothing and changed nothing.
    After an error of the disk the next operation opens the file again, with all checks: a commit that failed
    may turn out to be done.

    **An old copy of the whole file is a valid store.** What was given after the copy was made could be given
    again, and differ. Nothing in a file can show this. A caller that knows how far the store had come passes
    ``at_least``. Open a backup, such as a snapshot of a machine, with ``restored=True``, which ends all
    sessions, or not at all.

    Parameters
    ----------
    path : the file's path, on a disk of this machine: locks of network disks are unreliable.
    key : the 32 random bytes that the store was created with.
    owner_id : the authority's id, 32 bytes, that the store was created with; None for the store of a client,
        a node, or a method's authority.
    at_least : a :attr:`position` that the store is known to have reached. An older file is refused.
    restored : begin an epoch above the file's and above the epoch of ``at_least``, the newest that anybody
        knows. Sessions of earlier epochs are refused from now on, and their secrets are deleted.

    Raises KeyMismatchError for another key or owner; WireFormatError for a file that was damaged or altered;
    PolicyError for a file that is older than ``at_least``, or that another process holds; DataError;
    ParameterError.
    """

    _kinds: ClassVar[tuple[str, ...]]  # kinds of records that outlast a restored backup
    _of_epoch: ClassVar[tuple[str, ...]]  # kinds that are deleted when a backup is restored
    _rewritten: ClassVar[tuple[str, ...]]  # kinds whose records are written over, and never deleted
    _owner: ClassVar[bytes]  # of stores that are created without an owner; 32 bytes
    _nothing: ClassVar[str]  # sentence that says what a failed transaction has not done
    _process = 0  # 0 if it was never opened
    _connection: sqlite3.Connection | None = None
    _file: HeldFile | None = None
    _keys: StoreKeys | None = None
    _kept_files: KeptFiles
    _written_anew: Position | None = None
    _live: Transaction | None = None
    """Transaction of :meth:`together` while it calls its work."""
    _is_operating = False
    """Whether an operation of that work has begun and not ended."""

    def __init__(
        self,
        path: str | PathLike[str],
        key: bytes,
        owner_id: bytes | None = None,
        *,
        at_least: tuple[int, int] = (0, 0),
        restored: bool = False,
        _content: bytes = b"",
    ) -> None:
        self._process = os.getpid()
        self._key, self._owner_id = key, self._checked(key, owner_id)
        if not isinstance(at_least, tuple) or len(at_least) != 2:
            raise ParameterError("at_least must be a position: an epoch and a number of rows")
        self.position = Position(*(as_number(number, "a number of at_least") for number in at_least))
        """How far the store has come. Noted elsewhere, such as in signed answers, it reveals old copies."""
        # Absolute: after an error the same file is opened again, even if the process has changed folders.
        self._path = path if path is MEMORY else Path(path).absolute()
        self._content = _content
        self._newest: dict[Place, int] = {}  # so that an earlier record, put back while it is held, is found
        self._lock = threading.RLock()
        self._closed = False
        if path is not MEMORY:
            self._file = HeldFile(self._path, self._nothing)
        try:
            with sqlite_errors_in_our_words(self._path, self._nothing):
                self._connection = self._opened(restored)
        except BaseException:
            self._let_go(give_up=True)
            raise

    @classmethod
    def create(cls, path: str | PathLike[str], key: bytes, owner_id: bytes | None = None) -> Self:
        """Make an empty store, file mode 0600, and open it.

        Raises PolicyError if the file exists; DataError, OSError.
        """
        owner, place = cls._checked(key, owner_id), Path(path)
        try:
            os.close(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            raise PolicyError(
                f"{place} exists: open it, or choose another path. A new store replaces no file"
            ) from None
        except ValueError as error:
            raise ParameterError(NO_PATH) from error
        try:
            _filled(place, key, owner, cls._nothing)
            # SQLite syncs the folder for its own files only; this file was there before.
            sync_folder(place)
        except BaseException:
            remove_store_file(place)
            raise
        return cls(path, key, owner_id)

    @classmethod
    def _checked(cls, key: bytes, owner_id: bytes | None) -> bytes:
        as_bytes(key, KEY_BYTES, "a store's key")
        return as_bytes(cls._owner if owner_id is None else owner_id, OWNER_BYTES, "a store's owner")

    @classmethod
    def in_memory(cls, key: bytes, owner_id: bytes, content: bytes | None = None) -> Self:
        """Make a store that ends with this process, from what :meth:`serialised` returned, if anything."""
        if content is None:
            content = _filled(MEMORY, key, owner_id, cls._nothing)
        return cls(MEMORY, key, owner_id, _content=content)

    def __del__(self) -> None:
        # The connection is in a cycle of Python's making, and would hold its file until the next collection
        # of such.
        if self._process == os.getpid():
            self._let_go(give_up=True)
        elif self._connection is not None:
            # In a child it is never freed: its end would roll back what the parent is writing.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))

    def _opened(self, restored: bool) -> sqlite3.Connection:
        try:
            with contextlib.ExitStack() as stack:
                connection = _connected(self._path)
                stack.callback(connection.close)
                self._verify(connection, restored)
                stack.pop_all()
        except (UnicodeDecodeError, sqlite3.DataError) as error:
            # A length beyond SQLite's limit, or a name that is no text: a store writes neither.
            kind, words = DAMAGED
            raise kind(f"the store {self._path} {words}. {self._nothing}") from error
        return connection

    def _verify(self, connection: sqlite3.Connection, restored: bool) -> None:
        if self._path is MEMORY:
            # SQLite does not notice that an unused page is missing.
            pages, of_page = (int.from_bytes(self._content[at], "big") for at in _PAGES)
            if len(self._content) != pages * of_page or not pages:
                raise WireFormatError("the content of a store in memory is truncated")
            connection.deserialize(self._content)
            self._content = b""
        connection.execute("BEGIN EXCLUSIVE")
        tables = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
        if tables.fetchall() != [(table,) for table in _SCHEMA]:
            raise WireFormatError(
                f"{self._path} does not have the tables of a store: another version of shieldfl made it, or "
                "it was altered. Keep it and use that version; if it is empty, since its creation was "
                "interrupted, delete it and create it again"
            )
        # This also checks the order of a table, by which records are found.
        if connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            raise sqlite3.DataError
        self._check(connection, restored)
        connection.execute("COMMIT")
        self._write_anew(connection)

    def _write_anew(self, connection: sqlite3.Connection) -> None:
        """Clear the file of overwritten bytes, which a row's old place may hold if SQLite moved the row."""
        if self._path is not MEMORY:
            connection.execute("VACUUM")
        self._written_anew = self.position

    def _check(self, connection: sqlite3.Connection, restored: bool) -> None:
        """Verify a file that was just opened, for the first time or again after an error of the disk."""
        heads = connection.execute("SELECT owner, salt, proof FROM head").fetchall()
        if len(heads) != 1 or not all(isinstance(value, bytes) for value in heads[0]):
            refuse_altered("its head is not what was written")
        owner, salt, proof = heads[0]
        if owner != self._owner_id:
            raise KeyMismatchError(
                "this is the store of another authority, or of a client: open the file that belongs here"
            )
        self._keys = StoreKeys(self._key, owner, salt)
        if not hmac.compare_digest(self._keys.proof, proof):
            raise KeyMismatchError(
                "the store was made under another key, or its head was altered: pass the key that made it"
            )
        self._kept_files = KeptFiles(self._path, self._keys.mac("kept files")[:8].hex(), self._nothing)
        found = Transaction(self, connection)
        found.verify({*self._kinds, *self._of_epoch})
        if restored:
            epoch = as_number(max(found.epoch, self.position.epoch) + 1, "the epoch after this")
            found.epoch, found.number = epoch, found.number + 1
            for kind in self._of_epoch:
                connection.execute("DELETE FROM records WHERE kind = ?", (kind,))
                found.sums.pop(kind, None)
            found.written = {at: one for at, one in found.written.items() if at.kind in self._kinds}
        elif (found.epoch, found.number) < self.position:
            raise PolicyError(
                f"this is an old copy of the store: it ends at row {found.number} of epoch {found.epoch}, "
                f"but is known to have reached row {self.position.rows} of epoch {self.position.epoch}. Open "
                "the newest file, or, if that is lost, this one with restored=True"
            )
        if restored or self._path is not MEMORY:
            # Once this is on the disk, so is what was read before. After a failed commit, its pages may be in
            # the machine's memory, be read from there, and never get to the disk.
            found.write_head()
        self.position, self._newest = Position(found.epoch, found.number), found.written

    def together(self, work: Callable[[], T]) -> T:
        """Call ``work``, whose operations on this store are one transaction; return once it is on the disk.

        An operation that raises an error is undone alone. An error of the disk undoes all: this raises
        DataError then, even if ``work`` caught it. Not a ``with``: an interrupt on its way in or out could
        leave the transaction to the next caller.
        """
        with self._transaction() as change:
            if self._live is not None:
                raise PolicyError(_ASKED_WITHIN)
            self._live = change
            try:
                result = work()
                if self._is_operating:
                    raise PolicyError(
                        "an operation on the store was interrupted: nothing of this call is kept"
                    )
            finally:
                self._live, self._is_operating = None, False
        return result

    @contextlib.contextmanager
    def _operation(self, outer: Transaction) -> Iterator[Transaction]:
        """Yield the transaction of :meth:`together` to one operation."""
        connection, before = self._connection, (dict(outer.sums), dict(outer.written))
        # Out of memory, SQLite undoes the whole transaction, which Python reports as no error of the disk.
        if connection is None or not connection.in_transaction:
            raise DataError(f"the store {self._path} failed before: nothing of this call is kept")
        self._is_operating = True
        try:
            connection.execute("SAVEPOINT operation")
            yield outer
            self._check_process()
            connection.execute("RELEASE operation")
        except BaseException as error:
            if self._live is outer:
                self._undo(error, connection, "ROLLBACK TO operation", "RELEASE operation")
                outer.sums, outer.written = before  # and not the number: no key may seal two records of one
                self._is_operating = False
            raise
        if self._live is outer:
            self._is_operating = False

    def _undo(self, error: BaseException, connection: sqlite3.Connection, *statements: str) -> None:
        """Undo what was done before an error; after an error of the disk, close the file."""
        if os.getpid() != self._process:
            return  # this is a forked child: its parent writes the transaction
        # An error that Python raised before it called SQLite is none of the disk.
        if isinstance(error, sqlite3.Error) and not isinstance(error, sqlite3.ProgrammingError):
            self._let_go()
            return
        if self._connection is not connection:
            return
        if not connection.in_transaction and self._file is not None:
            self._let_go()  # it may be committed, with nothing noted here: the next operation looks
            return
        try:
            for statement in statements if connection.in_transaction else ():
                connection.execute(statement)
        except sqlite3.Error:
            self._let_go()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Transaction]:
        """Yield a transaction; after ``with``, all of its changes are on the disk, or none."""
        self._check_process()
        with self._lock, sqlite_errors_in_our_words(self._path, self._nothing):
            if self._live is not None and not self._is_operating:
                with self._operation(self._live) as change:
                    yield change
                return
            connection = self._held()
            try:
                connection.execute("BEGIN IMMEDIATE")
                change = Transaction(self, connection)
                if (change.epoch, change.number) < self.position:
                    refuse_altered("an earlier content was put back while it was held here")
                before = change.number
                yield change
                self._check_process()
                if self._connection is not connection or not connection.in_transaction:
                    raise DataError(f"the store {self._path} failed. {self._nothing}")
                if change.number != before:
                    change.write_head()
                    self._written_anew = None
                if self._file is not None:
                    self._file.check_in_place()
                connection.execute("COMMIT")
                self.position = Position(change.epoch, change.number)
                self._newest |= change.written
            except BaseException as error:
                self._undo(error, connection, "ROLLBACK")
                raise

    def _check_process(self) -> None:
        # Checked before the lock is taken: a thread that a forked child lacks may hold it.
        if os.getpid() != self._process:
            raise PolicyError(
                f"the store {self._path} was opened by the process that this one was forked from: a store "
                "has one writer. Close it before the fork and open it after, in one of the two"
            )

    def _held(self) -> sqlite3.Connection:
        if self._closed:
            raise PolicyError(f"the store {self._path} was closed: open it again")
        if self._file is not None:
            self._file.check_in_place()
        if self._connection is None:
            if self._file is None:
                raise PolicyError("the store in memory was lost in an error: begin another one")
            self._connection = self._opened(restored=False)
        if self._connection.in_transaction:
            raise PolicyError(_ASKED_WITHIN)
        return self._connection

    def serialised(self) -> bytes:
        """Return the content of a store in memory, in which secrets are sealed under the store's key."""
        self._check_process()
        with self._lock, sqlite_errors_in_our_words(self._path, self._nothing):
            return bytes(self._held().serialize())

    def close(self) -> None:
        """Close the store: it does nothing more here, and another process can open the file."""
        if os.getpid() != self._process:
            return
        with self._lock:
            if self._connection is not None and self._connection.in_transaction:
                raise PolicyError(_ASKED_WITHIN)
            self._closed = True
            if self._connection is not None and self.position != self._written_anew:
                with contextlib.suppress(sqlite3.Error):  # it is written anew when it is opened, too
                    self._write_anew(self._connection)
            self._let_go(give_up=True)
            self._keys, self._key = None, b""

    def _let_go(self, *, give_up: bool = False) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()
        if give_up and self._file is not None:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
