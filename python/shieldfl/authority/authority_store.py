"""A key authority's memory in one SQLite file: whom it has answered, with what, and the clients' keys.

Everything is on the disk before an answer leaves, so neither a crash nor a second request leads to another
answer.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from shieldfl.array_view import as_bytes, as_count
from shieldfl.authority.store import (
    AT_PLACE,
    DIGEST_BYTES,
    KEY_BYTES,
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


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class ClientKey(Uncopied):
    """A client's key, 32 bytes, from which the keys of ``round`` and later derive, but no earlier ones."""

    _why_uncopied = "holds a secret key and is neither copied nor pickled: take it where it is used"

    round: int
    key: bytes


Keys = Mapping[int, ClientKey]
"""Clients' keys, by client."""


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
    replied: int = 0
    """Number of the newest reply's record."""
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


def message_place(session: bytes, round_number: int, phase: str | None = None) -> Place:
    """Return the place of a sent message's digest: a round's first message, or the reply in a phase."""
    if phase is None:
        return placed("first message", session, round_number)
    return placed("reply", session, round_number, phase)


Participants = list[tuple[int, bytes]]
"""Clients' numbers, in ascending order, each with the id of the client's frame."""
_CLIENTS_AT_ONCE = 500
"""Most clients whose records one statement asks for, within every SQLite's limit on values."""


def _listed(participants: Any) -> Participants:
    """Return a list in order. Raises ParameterError; PolicyError for a list with duplicates."""
    listed = sorted(
        (as_number(client, "a client's number"), as_bytes(frame_id, _FRAME_ID_BYTES, "a frame id"))
        for client, frame_id in participants
    )
    for column, what in ((0, "a client"), (1, "a frame")):
        if len({entry[column] for entry in listed}) < len(listed):
            raise PolicyError(f"the list names {what} twice: each counts once. Start a new round")
    return listed


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


def take_keys(change: Transaction, session: bytes, clients: Iterable[int]) -> dict[int, ClientKey]:
    """Return clients' keys, which have to be written again.

    Raises PolicyError for a client that is not enrolled, or was revoked.
    """
    held: dict[int, ClientKey | None] = dict.fromkeys(clients)
    asked = list(held)
    for first in range(0, len(asked), _CLIENTS_AT_ONCE):
        some = asked[first : first + _CLIENTS_AT_ONCE]
        places = ",".join("?" * len(some))
        condition = f"kind = 'key' AND session = ? AND round = -1 AND name = '' AND client IN ({places})"
        for place, _, content in change.find(condition, session, *some, taken=True):
            if not content:
                raise PolicyError(f"client {place.client} was revoked: leave it out, in a new round")
            held[place.client] = ClientKey(*decoded(content, tuple[int, bytes]))
    keys = {client: key for client, key in held.items() if key is not None}
    for client in held.keys() - keys.keys():
        raise PolicyError(f"client {client} is not enrolled in the session: leave it out, in a new round")
    return keys


def _write_keys(change: Transaction, session: bytes, keys: Keys, *, taken: bool) -> None:
    for client, key in sorted(keys.items()):
        as_bytes(key.key, KEY_BYTES, "a client's key")
        change.put(Place("key", session, client=client), encoded((key.round, key.key)), taken=taken)


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

    _kinds = ("session", "first message", "reply", "enrolment key", "enrolment end")
    _of_epoch = ("key", "grant", "answer")
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

    def enrol(self, session: bytes, keys: Keys, grants: Mapping[int, Grant] | None = None) -> None:
        self.enrol_in({session: keys}, {session: grants or {}})

    def enrol_in(
        self,
        keys: Mapping[bytes, Keys],
        grants: Mapping[bytes, Mapping[int, Grant]] | None = None,
        *,
        clients: int | None = None,
    ) -> None:
        """Enrol clients in several sessions, in all or none; keys and grants are by session, then client.

        ``clients`` is the final number of clients. Enrolment ends with the last one, in all sessions of the
        store.
        """
        with self._enrolling(list(keys), clients) as change:
            for session, own in keys.items():
                for client in own:
                    if change.get(placed("key", session, client=client)) is not None:
                        raise PolicyError(
                            f"client {client} was enrolled in the session before: take another number"
                        )
                _write_keys(change, session, own, taken=False)
                for client, grant in (grants or {}).get(session, {}).items():
                    change.put(Place("grant", session, client=client), encoded(grant))

    def grant_opener(self, sessions: Iterable[bytes], grant: Grant, *, clients: int | None = None) -> None:
        """Keep in several sessions the one grant of an opener that is no client.

        ``clients`` is as for :meth:`enrol_in`.
        """
        every = list(sessions)
        with self._enrolling(every, clients) as change:
            for session in every:
                if change.get(Place("grant", session)) is not None:
                    raise PolicyError(OPENER_HAS_GRANT)
                change.put(Place("grant", session), encoded(grant))

    @contextlib.contextmanager
    def _enrolling(self, sessions: list[bytes], clients: int | None) -> Iterator[Transaction]:
        """Yield a transaction that enrols; then end enrolment if each session has ``clients`` clients.

        With None for ``clients``, enrolment does not end.
        """
        with self._transaction() as change:
            if _has_ended(change):
                raise PolicyError(ENROLMENT_HAS_ENDED)
            for session in sessions:
                _read_session(change, session)
            yield change
            if clients is not None and all(change.count("key", session) >= clients for session in sessions):
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
        place = placed("key", session, client=as_number(client, "a client's number"))
        with self._transaction() as change:
            _read_session(change, session)
            take_keys(change, session, [place.client])
            change.put(place, b"", taken=True)
            change.delete(AT_PLACE, *place._replace(kind="grant"))

    def close_round(self, session: bytes, round_number: int, ratchet: Callable[[Keys], Keys]) -> None:
        """End a round and all earlier ones for every client; a round that was ended before stays as it is.

        ``ratchet`` gets all clients' keys. It returns them, each advanced to the next round unless it is past
        that.
        """
        number = placed("session", session, round_number).round
        with self._transaction() as change:
            begun = _read_session(change, session)
            if number <= begun.closed:
                return
            _check_ahead(number, begun)
            held = {
                place.client: ClientKey(*decoded(content, tuple[int, bytes]))
                for place, _, content in change.find("kind = 'key' AND session = ?", session)
                if content
            }
            ratcheted = ratchet(held)
            if ratcheted.keys() != held.keys() or any(
                key.round != max(held[client].round, number + 1) for client, key in ratcheted.items()
            ):
                raise ParameterError(f"every key must be advanced to round {number + 1}, and none further")
            _write_keys(change, session, ratcheted, taken=False)
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
        compute: Callable[[Keys], tuple[bytes, Keys]],
    ) -> bytes:
        """Return the answer for a set of clients: the same request's earlier answer, or else a new one.

        ``compute`` gets the clients' keys. It returns the answer and all these keys, each at its new round,
        at most the round after this one. It is called within the transaction, at most once. Its answer must
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
            held = take_keys(change, session, [client for client, _ in listed])
            if any(key.round > number for key in held.values()):
                raise PolicyError(
                    f"the key of a client has advanced past round {number}: ask for a later round"
                )
            answer, ratcheted = compute(held)
            if ratcheted.keys() != held.keys() or any(
                not held[client].round <= key.round <= number + 1 for client, key in ratcheted.items()
            ):
                raise ParameterError(
                    f"each key, and no other, must be returned, at most at round {number + 1}"
                )
            # No other list of this occasion has this client: so there is nothing at this place yet.
            place = occasion._replace(client=listed[0][0])
            written = purpose, change.put(place, encoded((total_digest, listed, answer)))
            _write_keys(change, session, ratcheted, taken=True)
            others = begun.answers if number == begun.answered else ()
            begun = begun._replace(answered=number, answers=(*others, written))
            _write_session(change, session, begun)
            # All clients that were answered for in these rounds are below the floor from now on.
            change.delete("kind = 'answer' AND session = ? AND round <= ?", session, begun.newest_dropped)
        return answer

    def keep_message(self, place: Place, digest: bytes) -> None:
        """Keep a message's digest, 32 bytes, at its :func:`message_place`.

        Raises PolicyError if another digest is there.
        """
        as_bytes(digest, DIGEST_BYTES, "digest")
        with self._transaction() as change:
            begun, kept = _read_session(change, place.session), change.get(place)
            if kept is None:
                number = change.put(place, digest)
                if place.name:
                    _write_session(change, place.session, begun._replace(replied=number))
            elif kept != digest:
                raise PolicyError(
                    f"phase {place.name!r} of round {place.round} got another reply before: send the "
                    "message that got it"
                    if place.name
                    else f"round {place.round} was begun with another first message: begin it with that one, "
                    "or begin a later round"
                )

    def row_of_message(self, place: Place) -> int:
        """Return the row number of a kept message; 0 if there is none."""
        with self._transaction() as change:
            return change.number_at(place)

    def check_replies_are_known(self, place: Place, known: int) -> None:
        """Raise PolicyError if a reply that precedes a message was kept after the row ``known``."""
        with self._transaction() as change:
            if _read_session(change, place.session).replied <= known:
                return
            unknown = list(change.find("kind = 'reply' AND session = ? AND number > ?", place.session, known))
            own = change.number_at(place)
        # A round's replies can only be asked for again once it is begun.
        if any(
            (not own or number < own) if place.name else one.round < place.round for one, number, _ in unknown
        ):
            raise PolicyError(
                f"the store has {len(unknown)} reply(s) that this authority's restored state lacks: send the "
                "same requests again, in their order, or restore the newest state"
            )

    def has_answered(self, session: bytes, round_number: int, total_digest: bytes) -> bool:
        """Return whether a request of this session, round and total has an answer that is still kept."""
        digest = as_bytes(total_digest, DIGEST_BYTES, "total_digest")
        number = placed("answer", session, round_number).round
        with self._transaction() as change:
            answers = change.find("kind = 'answer' AND session = ? AND round = ?", session, number)
            return any(decoded(content, list[Any])[0] == digest for _, _, content in answers)
