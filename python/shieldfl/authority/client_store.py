"""A client's memory: what it made in each round, so that it never makes two different frames for one purpose.

The store is read in full when it is opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import Buffer, Update, as_real, as_unsigned, as_update
from shieldfl.authority.store import (
    Place,
    Store,
    Transaction,
    as_number,
    decoded,
    encoded,
    placed,
    refuse_altered,
)
from shieldfl.encryption.enrolment import (
    Answers,
    ClientKey,
    Identity,
    open_answered,
    read_grant,
)
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError
from shieldfl.masks import Mask
from shieldfl.stateful import Uncopied

_MADE_OF_BYTES = 32
"""Length in bytes of the MAC before a stored frame; it covers what the frame was made from."""


_Enrolment = tuple[list[bytes], list[tuple[bytes, bytes]]]
"""A client's enrolment in a session: its requests, and two keys for each authority, in their order.

The list of requests is empty once all authorities have granted them, and for a key that was enrolled
elsewhere. The first key reads the authority's grant; it is empty for a key that was enrolled elsewhere. The
second key opens the authority's answers; it is empty before the grant.
"""


def _frame_at(session: bytes, round_number: int, purpose: str, part: int) -> Place:
    place = placed("frame", session, round_number, purpose)
    return place._replace(name=f"{purpose}/{as_unsigned(part, 'part')}")


def _was_enrolled(change: Transaction, session: bytes) -> bool:
    """Return whether the session ever had a key here, even one that is gone since a backup was restored."""
    return change.get(Place("session", session)) is not None


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class _Key(Uncopied):
    """The contents of a key's record."""

    _why_uncopied = "holds a secret key and is neither copied nor pickled"

    client: int
    round: int
    """The round of the key."""
    secret: bytes
    made: list[str]
    """Names of the round's frames, which show if a frame's record was hidden while the store is held."""


def _read_key(change: Transaction, session: bytes) -> _Key:
    """Return the record of a client's key. Raises PolicyError if there is none."""
    found = change.get(Place("key", session))
    if found is None:
        raise PolicyError(
            "this store has no key of the session any more, since it was restored from a backup: enrol in a "
            "new session"
            if _was_enrolled(change, session)
            else "this store has no key of the session: enrol first"
        )
    return _Key(*decoded(found, tuple[int, int, bytes, list[str]]))


def _scheme_key(change: Transaction, public_key: Any) -> Any:
    kept = _read_key(change, public_key.id)
    return ClientKey(public_key, kept.client, kept.secret, kept.round)


def _write_key(change: Transaction, session: bytes, key: Any, made: Iterable[str] = ()) -> None:
    """Write a scheme's ``ClientKey`` in place of the old one; ``made`` names the frames of its round."""
    secret = key.export_secret()
    change.put(Place("key", session), encoded([key.client, key.round, bytes(secret), list(made)]))
    secret[:] = bytes(len(secret))


def _read_enrolment(change: Transaction, session: bytes) -> _Enrolment:
    """Return a client's enrolment. Raises PolicyError if there is none."""
    found = change.get(Place("enrolment", session))
    if found is None:
        _read_key(change, session)
    return decoded(found or b"", tuple[list[bytes], list[tuple[bytes, bytes]]])


class ClientStore(Store):
    """The memory of one client in any number of sessions, for every scheme in which clients enrol.

    There is one frame for each session, round, purpose and part. :meth:`encrypt` stores the frame, with the
    key's new state, before it returns the frame. A second call with the same values returns the same bytes,
    and with other values it raises. This also holds in another process, after this one was ended at any
    moment. Rounds only go up, and keys advance with them.

    A session is named by its public key, which the client has pinned. The store holds only secrets, sealed
    under its key. An old copy of the store could make an earlier round's frame again, and open what was
    recorded since: see :class:`~shieldfl.authority.store.Store`.

    Example
    -------
    >>> import secrets
    >>> import numpy as np
    >>> import shieldfl as sf
    >>> from shieldfl.authority.client_store import ClientStore
    >>> authority = sf.KeyAuthority(sf.kahe.Parameters(max_clients=8), min_clients=3)
    >>> with ClientStore.create("clinic-1.store", secrets.token_bytes(32)) as store:
    ...     (request,) = store.enrol(authority.public_key, "clinic-1")
    ...     name = authority.accept(request)
    ...     store.take_grant(authority.public_key, authority.grant(name))
    ...     frame = store.encrypt(authority.public_key, np.ones(5), round=1)
    ...     again = store.encrypt(authority.public_key, np.ones(5), round=1)
    >>> assert frame == again
    """

    _kinds, _of_epoch = ("session", "values"), ("key", "enrolment", "frame")
    _rewritten = ("key", "enrolment")
    _owner = hashlib.sha256(b"shieldfl client store 1\0").digest()
    _nothing = "No frame was made"
    _why_uncopied = "holds a client's secrets and is neither copied nor pickled: open it where it is used"

    def enrol(self, public_key: Any, client: int | str, identity: Identity | None = None) -> list[bytes]:
        """Draw the secrets that the client shares with key authorities; return a sealed request for each.

        Requests are in the order of the authorities' group; a single authority gets a list of one. Before all
        authorities have granted the enrolment, a second call returns the same requests.

        Parameters
        ----------
        public_key : the session's, as the client has pinned it.
        client : a number below 2**31, or a name.
        identity : the authority's, or the group's, for a public key that was read from a frame alone.

        Raises PolicyError if the session has or had a key here; KeyMismatchError for an identity that is not
        the session's; ParameterError.
        """
        key, requests = ClientKey.requests(public_key, client, identity)
        session, granted = key.public_key.id, [(reads_grants, b"") for reads_grants in key._grant_keys]
        with self._transaction() as change:
            if _was_enrolled(change, session):
                number = _read_key(change, session).client
                before, _ = _read_enrolment(change, session)
                if number == key.client and before:
                    return before
            self._add(change, key, (requests, granted))
        return requests

    def add_key(self, key: Any) -> None:
        """Take a ``ClientKey`` that was made elsewhere, with its grants. Use it nowhere else from now on.

        Raises PolicyError if its session has or had a key here.
        """
        granted = []
        with contextlib.suppress(PolicyError):
            granted = [(b"", opening_key) for opening_key in key.opening_keys]
        with self._transaction() as change:
            self._add(change, key, ([], granted))

    def _add(self, change: Transaction, key: Any, enrolment: _Enrolment) -> None:
        session = key.public_key.id
        if _was_enrolled(change, session):
            raise PolicyError(
                "the session has a key in this store, or had one before a backup was restored: enrol in a "
                "new session"
            )
        change.put(Place("session", session), b"")
        change.put(Place("enrolment", session), encoded(enrolment))
        _write_key(change, session, key)

    def take_grant(self, public_key: Any, grant: Buffer) -> None:
        """Take a key authority's grant, by which this client opens the authority's answers.

        Raises KeyMismatchError for a grant of another client or session; PolicyError without an enrolment
        here, for example after :meth:`add_key`.
        """
        session = public_key.id
        with self._transaction() as change:
            requests, granted = _read_enrolment(change, session)
            if not granted or not granted[0][0]:
                raise PolicyError(
                    "the session's key was enrolled elsewhere: have that key take its grants before add_key()"
                )
            for index, (reads_grants, known) in enumerate(granted):
                try:
                    opening_key = read_grant(reads_grants, session, grant)
                except KeyMismatchError:
                    if index < len(granted) - 1:
                        continue  # it may be another authority's
                    raise
                if not known:
                    granted[index] = reads_grants, opening_key
                    is_last = all(opens for _, opens in granted)
                    change.put(Place("enrolment", session), encoded(([] if is_last else requests, granted)))
                return

    def opening_keys(self, public_key: Any) -> list[bytes]:
        """Return the keys that open the session's answers, 32 bytes for each authority; secret.

        Raises PolicyError before all authorities have granted them.
        """
        with self._transaction() as change:
            opening_keys = [opens for _, opens in _read_enrolment(change, public_key.id)[1]]
        if not opening_keys or not all(opening_keys):
            raise PolicyError("this client was granted no answers: take the key authority's grant first")
        return opening_keys

    def open(
        self, public_key: Any, total: Any, answers: Answers, *, threads: int | None = None
    ) -> NDArray[np.float64]:
        """Open a total with each authority's answer: the sums, float64 (count,), by ascending position.

        Raises PolicyError before all authorities have granted the enrolment, and what :func:`open_answered`
        raises.
        """
        opens: Any = SimpleNamespace(public_key=public_key, opening_keys=self.opening_keys(public_key))
        return open_answered(total, answers, opens, threads=threads)

    def round(self, public_key: Any) -> int:
        """Return the round of the session's key; no frames of earlier rounds are made any more."""
        with self._transaction() as change:
            return _read_key(change, public_key.id).round

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
        """Return the only frame of a round, purpose and part, which is on the disk by then.

        The first call makes the frame; later calls return it.

        Parameters
        ----------
        public_key : the session's.
        update, mask, weight, clip : as for the scheme's ``Encryptor``.
        round : the frame's round; the key advances to it.
        purpose, part : what is encrypted, and which part of it, below 2**32.
        repeats : whether the same values may have been encrypted in another round. Use it for values that do
            not depend on data, or may be alike by nature, such as votes. If all other clients send the same
            as well, the difference of two sums is a single client's values. Values are the same if all are
            equal as float32, in the same order, for any purpose, part or weight. Values that are nearly the
            same are not noticed.
        threads : None for as many as the work is worth.

        Raises PolicyError if the frame was made from other values, another mask or another weight; for a
        round that is over, or more than 2**16 ahead; for values that were encrypted in another round, unless
        ``repeats`` is set; and without a key of the session. Raises DataError if the disk fails. None of
        these makes a frame or moves a key. Raises ParameterError for a purpose that is no text of 1 to 255
        bytes, and for arguments of other types. Raises what the ``Encryptor`` raises for values that it
        cannot encrypt.
        """
        session = public_key.id
        place = _frame_at(session, round, purpose, part)
        values = as_update(update)
        if not isinstance(mask, Mask | None) or not isinstance(clip, bool | np.bool_):
            raise ParameterError("mask must be a Mask or None, and clip True or False")
        chosen = values if mask is None else mask.gather(values)
        how = hashlib.sha256(b"" if mask is None else mask.to_bytes())
        how.update(b"" if weight is None else struct.pack("<d", as_real(weight, "weight")))
        how.update(chosen.data if chosen.dtype == np.float64 else b"")
        with np.errstate(over="ignore", invalid="ignore"):
            # In another precision, or with another sign of zero, they are the same values.
            alike = chosen.astype(np.float32, copy=False) + np.float32(0)
        digest = hashlib.sha256(alike.data).digest()
        with self._transaction() as change:
            of_values = change.keys.mac("values", session, digest)
            made_of = change.keys.mac("frame", of_values, how.digest(), int(clip))
            found = change.get(place)
            if found is not None:
                if found[:_MADE_OF_BYTES] != made_of:
                    raise PolicyError(
                        f"a frame of round {place.round} was made for this purpose and part from "
                        "another update, mask, weight or clip, and may have been sent: send that frame "
                        "again, or begin a later round"
                    )
                return found[_MADE_OF_BYTES:]
            kept = _read_key(change, session)
            made = kept.made if kept.round == place.round else []
            if place.name in made:
                refuse_altered(f"{place} is missing")
            # The first round that had these values is enough: frames are only made in the newest round.
            values_at = Place("values", session, name=of_values.hex())
            first = change.get(values_at)
            if not repeats and first is not None and first != encoded(place.round):
                raise PolicyError(
                    "these values were encrypted in another round: two sums could tell them from the "
                    "others'. Train further, and send another update"
                )
            key = _scheme_key(change, public_key)
            encryptor = scheme_of(public_key).Encryptor(key, threads, purpose=purpose, part=part)
            frame: bytes = encryptor.encrypt(values, mask, weight, place.round, clip=clip).to_bytes()
            change.delete("kind = 'frame' AND session = ? AND round < ?", session, place.round)
            change.put(place, made_of + frame)
            if first is None:
                change.put(values_at, encoded(place.round))
            _write_key(change, session, key, [*made, place.name])
        return frame

    def frame(self, public_key: Any, *, round: int, purpose: str = "update", part: int = 0) -> bytes | None:
        """Return a made frame, to send it again; None if there is none, or if a later round has any."""
        place = _frame_at(public_key.id, round, purpose, part)
        with self._transaction() as change:
            found = change.get(place)
        return None if found is None else found[_MADE_OF_BYTES:]

    def close_round(self, public_key: Any, round: int) -> None:
        """End a round and all earlier ones: their key is overwritten, and no more frames of them are made.

        Frames that were made can be sent again until a frame of a later round is made. Raises PolicyError
        without a key of the session, and for a round more than 2**16 ahead.
        """
        session, number = public_key.id, as_number(round, "round")
        with self._transaction() as change:
            key = _scheme_key(change, public_key)
            if key.round <= number:
                key.advance_to(number + 1)
                _write_key(change, session, key)
