"""A key authority's memory in one SQLite file: whom it has answered, with what, and the clients' keys.

Everything is on the disk before an answer leaves, so neither a crash nor a second request leads to another
answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import Buffer, as_bytes, as_count
from shieldfl.authority.private_file import Kept
from shieldfl.authority.store import (
    AT_PLACE,
    DIGEST_BYTES,
    KEY_BYTES,
    MEMORY,
    Place,
    Store,
    Transaction,
    as_number,
    decoded,
    encoded,
    placed,
    refuse_altered,
)
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.stateful import Uncopied

MOST_ROUNDS_AHEAD = 2**16
"""Largest distance of a request's round above the oldest open one: a later round would end all between."""

ENROLMENT_HAS_ENDED = (
    "enrolment has ended, and the key that requests are sealed to was erased: for further clients, "
    "begin a session of a new key authority"
)
OPENER_HAS_GRANT = (
    "an aggregator was granted the answers of this session before: resume that one from its "
    "state, or begin another session"
)
_FRAME_ID_BYTES = 16
_LEAST_CLIENTS = 2
_ENROLMENT_KEY, _ENROLMENT_END = Place("enrolment key"), Place("enrolment end")
_STATE = Place("state")


_REVOKED = np.uint64(2**64 - 1)
"""Round of a client that was revoked, whose key is zeros."""


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class StoredKeys(Uncopied):
    """Clients' keys, in ascending order of the clients.

    From each key derive the keys of its round and of later ones, but no earlier ones.
    """

    _why_uncopied = "hold secret keys and are neither copied nor pickled: take them where they are used"

    clients: NDArray[np.uint64]
    """Clients' numbers, shape (n,)."""
    rounds: NDArray[np.uint64]
    """Round of each key, shape (n,)."""
    secrets: NDArray[np.uint8]
    """The keys, shape (n, 32)."""

    @classmethod
    def of(cls, client: int, round_number: int, secret: Buffer) -> Self:
        """Return the key of one client, of 32 bytes."""
        clients, rounds = np.array([[client], [round_number]], np.uint64)
        return cls(clients, rounds, np.frombuffer(secret, np.uint8).reshape(1, KEY_BYTES).copy())

    @classmethod
    def joined(cls, several: Sequence[StoredKeys]) -> Self:
        """Return all keys of several, or of none. Raises PolicyError if they name a client twice."""
        several = [_NO_KEYS, *several]
        clients = np.concatenate([one.clients for one in several])
        order = np.argsort(clients, kind="stable")
        clients = clients[order]
        twice = clients[1:][clients[1:] == clients[:-1]]
        if twice.size:
            raise PolicyError(f"client {twice[0]} was enrolled in the session before: take another number")
        rounds, secrets = (
            np.concatenate([getattr(one, name) for one in several])[order] for name in _OF_EACH
        )
        return cls(clients, rounds, secrets)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        count = len(content) // _KEY_RECORD_BYTES
        clients, rounds = np.frombuffer(content, np.uint64, 2 * count).reshape(2, count).copy()
        secrets = np.frombuffer(content, np.uint8, offset=16 * count).reshape(count, KEY_BYTES)
        return cls(clients, rounds, secrets.copy())

    def to_bytes(self) -> bytes:
        return b"".join(column.tobytes() for column in (self.clients, self.rounds, self.secrets))

    def at(self, places: Any) -> StoredKeys:
        """Return the keys at these places; with a slice they are the same memory."""
        return StoredKeys(self.clients[places], self.rounds[places], self.secrets[places])

    def put(self, places: Any, keys: StoredKeys) -> None:
        """Overwrite the keys at these places."""
        self.rounds[places], self.secrets[places] = keys.rounds, keys.secrets

    def wipe(self) -> None:
        self.secrets[:] = 0


_OF_EACH = "rounds", "secrets"
_NO_KEYS = StoredKeys(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty((0, KEY_BYTES), np.uint8))
_KEY_RECORD_BYTES = 8 + 8 + KEY_BYTES
_CLIENTS_A_PAGE = 64
"""Number of consecutive clients whose keys are one record, of some 3 kB: an answer writes it once."""


class Grant(NamedTuple):
    """A client's grant, and the digest of its enrolment request: the same request gets the same grant."""

    grant: bytes
    request_digest: bytes | None = None
    """SHA-256 of the request, 32 bytes; None if the client was enrolled without one."""


class SessionRules(NamedTuple):
    """Rules that are fixed when a session begins; answers of the ``answers_kept`` newest rounds are kept."""

    manifest_digest: bytes
    min_clients: int
    answers_kept: int


class _Session(NamedTuple):
    """The contents of a session's record: its rules, and how far it has come."""

    epoch: int
    rules: SessionRules
    answered: int = -1
    closed: int = -1
    """Newest round that was closed, as ``answered`` is the newest that was answered; -1 before the first."""
    enrolled: int = 0
    """Number of clients that were ever enrolled."""
    answers: tuple[tuple[str, int], ...] = ()
    """Purpose and record number of each answer in the newest answered round.

    It shows if an answer's record was hidden, while the store is held, so that another list is answered
    meanwhile.
    """

    @property
    def oldest_open(self) -> int:
        """The oldest round in which new requests are answered, even if answers of earlier ones are kept."""
        return max(0, self.answered, self.closed + 1)

    @property
    def newest_dropped(self) -> int:
        """The newest round whose answers are no longer kept; it is older than :attr:`oldest_open`."""
        return self.answered - self.rules.answers_kept


Participants = list[tuple[int, bytes]]
"""Clients' numbers, in ascending order, each with the id of the client's frame."""
_PAGES_AT_ONCE = 500
"""Most pages that one statement asks for, within every SQLite's limit on values."""


def _listed(participants: Any) -> Participants:
    """Return a list in order. Raises ParameterError; PolicyError for a list with duplicates."""
    found = list(participants)
    clients = [as_number(client, "a client's number") for client, _ in found]
    frames = [as_bytes(frame_id, _FRAME_ID_BYTES, "a frame id") for _, frame_id in found]
    for column, what in ((clients, "a client"), (frames, "a frame")):
        if len(set(column)) < len(column):
            raise PolicyError(f"the list names {what} twice: each counts once. Start a new round")
    return sorted(zip(clients, frames, strict=True))


def _read_session(change: Transaction, session: bytes) -> _Session:
    found = change.get(Place("session", session))
    if found is None:
        raise PolicyError("this authority has no such session: begin it first")
    begun = decoded(found, _Session)
    if begun.epoch != change.epoch:
        raise PolicyError(
            f"the session was begun in epoch {begun.epoch}, and a backup of the store was restored since: "
            "what was answered in between is not known. Begin a new session"
        )
    return begun


def _write_session(change: Transaction, session: bytes, begun: _Session) -> None:
    change.put(Place("session", session), encoded(begun))


def _check_ahead(round_number: int, begun: _Session) -> None:
    if round_number > begun.oldest_open + MOST_ROUNDS_AHEAD:
        raise PolicyError(
            f"round {round_number} is more than {MOST_ROUNDS_AHEAD} above {begun.oldest_open}, the oldest "
            "open round: continue from there"
        )


def _check_open(round_number: int, begun: _Session) -> None:
    if round_number < begun.oldest_open:
        gone = ", and its answers are no longer kept" * (round_number <= begun.newest_dropped)
        raise PolicyError(f"round {round_number} is over{gone}: the oldest open round is {begun.oldest_open}")
    _check_ahead(round_number, begun)


def _page(number: Any) -> str:
    return f"page {number}"


class _KeyPages:
    """The pages of a session's keys that have some clients, within a transaction that writes them again."""

    def __init__(
        self, change: Transaction, session: bytes, clients: NDArray[np.uint64] | None = None
    ) -> None:
        """Read the pages of these clients; of all clients for None."""
        self._change, self._session = change, session
        if clients is None:
            found = [*change.find("kind = 'keys' AND session = ?", session, taken=True)]
            asked = change.known("keys", session)
        else:
            found, pages = [], [_page(one) for one in np.unique(clients // _CLIENTS_A_PAGE)]
            asked = [Place("keys", session, name=page) for page in pages]
            for first in range(0, len(pages), _PAGES_AT_ONCE):
                some = pages[first : first + _PAGES_AT_ONCE]
                places = ",".join("?" * len(some))
                at = f"kind = 'keys' AND session = ? AND round = -1 AND name IN ({places}) AND client = -1"
                found += change.find(at, session, *some, taken=True)
        self._there = {place for place, _, _ in found}
        change.check_none_missing(set(asked) - self._there)
        self.keys = StoredKeys.joined([StoredKeys.from_bytes(page) for _, _, page in found])

    def places_of(self, clients: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return where clients' keys are. Raises PolicyError for clients that have none, or were revoked."""
        there = self.keys.clients
        places = np.searchsorted(there, clients)
        for client in clients[(places == len(there)) | (np.append(there, _REVOKED)[places] != clients)]:
            raise PolicyError(f"client {client} is not enrolled in the session: leave it out, in a new round")
        for client in clients[self.keys.rounds[places] == _REVOKED]:
            raise PolicyError(f"client {client} was revoked: leave it out, in a new round")
        return places

    def write(self) -> None:
        """Write every page over its earlier content, and wipe the keys here."""
        page_of = self.keys.clients // _CLIENTS_A_PAGE
        pages, starts = np.unique(page_of, return_index=True)
        for page, start, end in zip(pages, starts, np.append(starts[1:], len(page_of)), strict=False):
            place = Place("keys", self._session, name=_page(page))
            content = self.keys.at(slice(start, end)).to_bytes()
            self._change.put(place, content, taken=place in self._there)
        self.keys.wipe()


def _has_ended(change: Transaction) -> bool:
    return change.sums.get(_ENROLMENT_END.kind, (0,))[0] > 0  # also where the record is hidden


def _end_enrolment(change: Transaction) -> None:
    change.put(_ENROLMENT_END, b"")
    change.delete(AT_PLACE, *_ENROLMENT_KEY)


def _stored_answer(
    change: Transaction, begun: _Session, occasion: Place, listed: Participants, total_digest: bytes
) -> bytes | None:
    """Return the answer that this request got before; None if no client of its list was answered for."""
    clients, numbers = {client for client, _ in listed}, []
    condition = "kind = 'answer' AND session = ? AND round = ? AND name = ?"
    for _, number, content in change.find(condition, *occasion[1:4]):
        numbers.append(number)
        digest, others, answer = decoded(content, tuple[bytes, list[tuple[int, bytes]], bytes])
        if (digest, others) == (total_digest, listed):
            return answer
        if any(client in clients for client, _ in others):
            raise PolicyError(
                f"a client of this list was answered for in round {occasion.round} with another list or "
                "total: the difference of the two could be its update. Start a new round, with updates that "
                "were in no answered list"
            )
    written = sorted(number for name, number in begun.answers if name == occasion.name)
    if occasion.round == begun.answered and sorted(numbers) != written:
        refuse_altered(f"in round {occasion.round} it lacks some of its {len(written)} answer(s)")
    return None


class AuthorityStore(Store):
    """The memory of one authority, for every scheme; its owner is the authority.

    An answer is given once for each session, round, purpose and client, for ever. The same request gets the
    same bytes for as long as they are kept. Any other request with one of these clients, or for a round that
    is over, is refused. An old copy could answer another list: see :class:`~shieldfl.authority.store.Store`.
    """

    _kinds = ("session", "enrolment key", "enrolment end")
    _of_epoch = ("keys", "grant", "answer", "state")
    _rewritten = ("session", "keys", "state")
    _owner = hashlib.sha256(b"shieldfl authority store 1\0").digest()
    _nothing = "Nothing was answered"
    _why_uncopied = "holds an authority's secrets and is neither copied nor pickled: open it where it is used"

    def add_session(self, session: bytes, rules: SessionRules) -> None:
        """Begin a session, whose id has 16 bytes, in the current epoch.

        A second call with the same rules changes nothing.
        """
        place = placed("session", session)
        as_count(rules.answers_kept, "answers_kept")
        if rules.min_clients < _LEAST_CLIENTS:
            raise ParameterError(
                f"min_clients must be at least {_LEAST_CLIENTS}: the sum over one client is its update"
            )
        with self._transaction() as change:
            if change.get(place) is None:
                _write_session(change, session, _Session(change.epoch, rules))
            elif _read_session(change, session).rules != rules:
                raise PolicyError("the session was begun with other rules: begin another session")

    def has_session(self, session: bytes) -> bool:
        """Return whether a session was begun, in any epoch."""
        place = placed("session", session)
        with self._transaction() as change:
            return change.get(place) is not None

    def enrol(
        self,
        keys: Mapping[bytes, StoredKeys],
        grants: Mapping[bytes, Mapping[int | None, Grant]],
        *,
        clients: int | None = None,
    ) -> None:
        """Enrol clients in several sessions, in all or none; keys are by session, grants by client, too.

        None has the grant of an opener that is no client, of which there is one. ``clients`` is the final
        number of clients. Enrolment ends when each session has so many, in all sessions of the store.
        """
        with self._transaction() as change:
            if _has_ended(change):
                raise PolicyError(ENROLMENT_HAS_ENDED)
            counts = []
            for session, own in keys.items():
                begun = _read_session(change, session)
                pages = _KeyPages(change, session, own.clients)
                pages.keys = StoredKeys.joined([pages.keys, own])
                pages.write()
                counts.append(begun.enrolled + len(own.clients))
                _write_session(change, session, begun._replace(enrolled=counts[-1]))
                for client, grant in grants[session].items():
                    place = placed("grant", session, client=client)
                    if client is None and change.get(place) is not None:
                        raise PolicyError(OPENER_HAS_GRANT)
                    change.put(place, encoded(grant))
            if clients is not None and min(counts) >= clients:
                _end_enrolment(change)

    def grant(self, session: bytes, client: int | None) -> Grant | None:
        """Return the grant of a client, or of the opener for None; None without one, or once revoked."""
        place = placed("grant", session, client=client)
        with self._transaction() as change:
            _read_session(change, session)
            found = change.get(place)
        return None if found is None else decoded(found, Grant)

    def keep_enrolment_key(self, key: bytes | None) -> bytes | None:
        """Keep the key that opens requests unless there is one; return the kept one, None once erased."""
        with self._transaction() as change:
            if _has_ended(change):
                return None
            kept = change.get(_ENROLMENT_KEY)
            if kept is None and key is not None:
                change.put(_ENROLMENT_KEY, key)
                return key
            return kept

    def end_enrolment(self) -> None:
        """Erase the key that opens requests: nobody can enrol any more, in any session.

        A second call changes nothing.
        """
        with self._transaction() as change:
            if not _has_ended(change):
                _end_enrolment(change)

    def revoke(self, session: bytes, client: int) -> None:
        """Delete a client's key and grant: no list that names it is answered any more."""
        number = as_number(client, "a client's number")
        with self._transaction() as change:
            _read_session(change, session)
            asked = np.array([number], np.uint64)
            pages = _KeyPages(change, session, asked)
            (place,) = pages.places_of(asked)
            pages.keys.rounds[place], pages.keys.secrets[place] = _REVOKED, 0
            pages.write()
            change.delete(AT_PLACE, *Place("grant", session, client=number))

    def close_round(self, session: bytes, round_number: int, advance: Callable[[StoredKeys], None]) -> None:
        """End a round and all earlier ones for every client; a round that was ended before stays as it is.

        ``advance`` gets all clients' keys. It advances each, in place, to the next round unless it is past
        that.
        """
        number = placed("session", session, round_number).round
        with self._transaction() as change:
            begun = _read_session(change, session)
            if number <= begun.closed:
                return
            _check_ahead(number, begun)
            pages = _KeyPages(change, session)
            live = np.flatnonzero(pages.keys.rounds != _REVOKED)
            held = pages.keys.at(live)
            advance(held)
            if not np.array_equal(held.rounds, np.maximum(pages.keys.rounds[live], number + 1)):
                raise ParameterError(f"every key must be advanced to round {number + 1}, and none further")
            pages.keys.put(live, held)
            held.wipe()
            pages.write()
            _write_session(change, session, begun._replace(closed=number))

    def newest_closed_round(self, session: bytes) -> int:
        """Return the newest round that was ended, -1 before the first."""
        with self._transaction() as change:
            return _read_session(change, session).closed

    def answer(
        self,
        session: bytes,
        round_number: int,
        purpose: str,
        participants: Iterable[tuple[int, bytes]],
        total_digest: bytes,
        compute: Callable[[StoredKeys], bytes],
    ) -> bytes:
        """Return the answer for a set of clients: the same request's earlier answer, or else a new one.

        ``compute`` gets the clients' keys. It advances each in place, at most to the round after this one,
        and returns the answer. It is called within the transaction, at most once. Its answer must
        leave only as what this method returns. Raises PolicyError, and computes nothing, for a list with
        duplicates, with fewer than ``min_clients`` clients, or with clients that are not enrolled, revoked,
        or answered already in another list; for a round that is over, or more than :data:`MOST_ROUNDS_AHEAD`
        ahead; for a session that is unknown, or ended.
        """
        listed, occasion = _listed(participants), placed("answer", session, round_number, purpose)
        number = occasion.round
        as_bytes(total_digest, DIGEST_BYTES, "total_digest")
        with self._transaction() as change:
            begun = _read_session(change, session)
            stored = _stored_answer(change, begun, occasion, listed, total_digest)
            if stored is not None:
                return stored
            min_clients = begun.rules.min_clients
            if len(listed) < min_clients:
                raise PolicyError(
                    f"the list names {len(listed)} clients, fewer than min_clients = {min_clients}: wait for "
                    "more clients before closing the round"
                )
            _check_open(number, begun)
            asked = np.array([client for client, _ in listed], np.uint64)
            pages = _KeyPages(change, session, asked)
            places = pages.places_of(asked)
            before, held = pages.keys.rounds[places], pages.keys.at(places)
            if np.any(before > number):
                raise PolicyError(
                    f"the key of a client has advanced past round {number}: ask for a later round"
                )
            answer = compute(held)
            if np.any((held.rounds < before) | (held.rounds > number + 1)):
                raise ParameterError(f"a key must never go back, nor past round {number + 1}")
            pages.keys.put(places, held)
            held.wipe()
            # No other list of this occasion has this client: so there is nothing at this place yet.
            place = occasion._replace(client=listed[0][0])
            written = purpose, change.put(place, encoded((total_digest, listed, answer)))
            pages.write()
            others = begun.answers if number == begun.answered else ()
            begun = begun._replace(answered=number, answers=(*others, written))
            _write_session(change, session, begun)
            # All clients that were answered for in these rounds are below the floor from now on.
            change.delete("kind = 'answer' AND session = ? AND round <= ?", session, begun.newest_dropped)
        return answer

    def keep_state(self, state: bytes) -> int:
        """Keep the state of the role whose memory this is, in place of the one before; return its number.

        Call it once in a transaction: the file of the state before is deleted by the next one.
        """
        with self._transaction() as change:
            if self._path is MEMORY:
                return change.put(_STATE, encoded(Kept(state)))
            files = self._kept_files
            before = [decoded(kept, Kept).file for _, _, kept in change.find(AT_PLACE, *_STATE, taken=True)]
            if not before:
                change.check_none_missing([_STATE])
            files.delete_others(before)
            return change.put(_STATE, encoded(files.keep(state)), taken=bool(before))

    def check_new(self) -> None:
        """Raise PolicyError for a store that has, or had, any record."""
        with self._transaction() as change:
            if (change.epoch, change.number) != (0, 0):
                raise PolicyError("the store is not new: make a store of its own for each federation")

    @property
    def state_number(self) -> int:
        """Number of the state that is on the disk, 0 without one; ask at the start of :meth:`together`."""
        return self._newest.get(_STATE, 0)

    def state(self) -> bytes:
        """Return the state that was kept last. Raises PolicyError if there is none."""
        with self._transaction() as change:
            kept = change.get(_STATE)
            if kept is None:
                raise PolicyError(
                    "the store has no state: it is new, or was restored from a backup. Set the federation up "
                    "anew, with a new store"
                )
            return self._kept_files.content(decoded(kept, Kept))

    def has_answered(self, session: bytes, round_number: int, total_digest: bytes) -> bool:
        """Return whether a request of this session, round and total has an answer that is still kept."""
        digest = as_bytes(total_digest, DIGEST_BYTES, "total_digest")
        number = placed("answer", session, round_number).round
        with self._transaction() as change:
            answers = change.find("kind = 'answer' AND session = ? AND round = ?", session, number)
            return any(decoded(content, list[Any])[0] == digest for _, _, content in answers)
