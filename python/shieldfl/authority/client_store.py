"""A client's memory: what it sent in each round, so that nothing is sent twice.

Read as a whole when it is opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
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
    SECRET_BYTES,
    Answers,
    ClientKey,
    Identity,
    grant_key,
    open_answered,
    read_grant,
    sealed_request,
)
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError
from shieldfl.masks import Mask
from shieldfl.stateful import Uncopied

_MADE_OF_BYTES = 32
"""Of the MAC, before a frame, of what it was made of."""


_Enrolment = tuple[list[bytes], list[tuple[bytes, bytes]]]
"""What a client has of its enrolment in a session, in the order of the authorities.

What it asked with: nothing once all have granted it, and where it was enrolled elsewhere. Then of each what
its grant is read with, nothing for a key that was enrolled elsewhere, and what opens its answers, nothing
before the grant.
"""


def _frame_at(session: bytes, round_number: int, purpose: str, part: int) -> Place:
    place = placed("frame", session, round_number, purpose)
    return place._replace(name=f"{purpose}/{as_unsigned(part, 'part')}")


def _was_enrolled(change: Transaction, session: bytes) -> bool:
    """Whether the session ever had a key here, also one that is gone since a backup was restored."""
    return change.get(Place("session", session)) is not None


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class _Key(Uncopied):
    """What the record of a key has."""

    _why_uncopied = "holds a secret key and is neither copied nor pickled"

    client: int
    round: int
    """That the key stands at."""
    secret: bytes
    made: list[str]
    """The names of the round's frames: so nobody hides one, while the store is held, to have another made."""


def _read_key(change: Transaction, session: bytes) -> _Key:
    """Return the client's key. Raises PolicyError for none."""
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
    """Write a scheme's ``ClientKey``, in the place of the one that there was.

    ``made`` names its round's frames.
    """
    secret = key.export_secret()
    change.put(Place("key", session), encoded([key.client, key.round, bytes(secret), list(made)]))
    secret[:] = bytes(len(secret))


def _read_enrolment(change: Transaction, session: bytes) -> _Enrolment:
    """Return what the client has of its enrolment. Raises PolicyError where there is nothing."""
    found = change.get(Place("enrolment", session))
    if found is None:
        _read_key(change, session)
    return decoded(found or b"", tuple[list[bytes], list[tuple[bytes, bytes]]])


class ClientStore(Store):
    """The memory of one client, in any number of sessions; the same for every scheme in which clients enrol.

    One frame is made for each session, round, purpose and part: :meth:`encrypt` writes it down, with the key
    as it stands then, before it returns it. Asked again with the same values it returns the same bytes, and
    with others it raises, also in another process after this one was ended at any moment. Rounds only go up,
    and keys with them.

    A session is named by its public key, which the client has pinned: the store has secrets alone, sealed
    under its key. From an old copy an earlier round's frame could be made again, and what was recorded since
    be opened: see :class:`~shieldfl.authority.store.Store`.
    """

    _kinds, _of_epoch = ("session", "values"), ("key", "enrolment", "frame")
    _owner = hashlib.sha256(b"shieldfl client store 1\0").digest()
    _nothing = "No frame was made"
    _why_uncopied = "holds a client's secrets and is neither copied nor pickled: open it where it is used"

    def enrol(self, public_key: Any, client: int | str, identity: Identity | None = None) -> list[bytes]:
        """Draw what the client shares with each key authority, and return for each the request that says so.

        They are sealed, in the order of the authorities' group: a list of one where there is one. Asked again
        before all have granted it, it returns the same requests again.

        Parameters
        ----------
        public_key : of the session, as the client has pinned it.
        client : a number below 2**31, or a name.
        identity : of the authority, or the group of several, for a public key that was read from a frame
            alone.

        Raises PolicyError where the session has a key here, or had one; KeyMismatchError for the identity of
        others; ParameterError.
        """
        if identity is not None:
            public_key = public_key.with_identity(identity)
        session, authorities = public_key.id, public_key.authorities
        drawn = bytearray(secrets.token_bytes(SECRET_BYTES * len(authorities)))
        shared = [bytes(drawn[start : start + SECRET_BYTES]) for start in range(0, len(drawn), SECRET_BYTES)]
        try:
            key = ClientKey.of_secret(public_key, client, drawn)
        finally:
            drawn[:] = bytes(len(drawn))
        requests = [
            sealed_request(authority, session, client, secret)
            for authority, secret in zip(authorities, shared, strict=True)
        ]
        granted = [(grant_key(secret, session), b"") for secret in shared]
        with self._transaction() as change:
            if _was_enrolled(change, session):
                number = _read_key(change, session).client
                before, _ = _read_enrolment(change, session)
                if number == key.client and before:
                    return before
            self._add(change, key, (requests, granted))
        return requests

    def add_key(self, key: Any) -> None:
        """Take a ``ClientKey`` that was made elsewhere, with what it was granted.

        Use it nowhere else from now on.

        Raises PolicyError where its session has a key here, or had one.
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
        """Take what a key authority gave for the enrolment: what lets this client open its answers.

        Raises KeyMismatchError for a grant of another client or session; PolicyError without an enrolment
        here, as where the key came by :meth:`add_key`.
        """
        session = public_key.id
        with self._transaction() as change:
            requests, granted = _read_enrolment(change, session)
            if not granted or not granted[0][0]:
                raise PolicyError("the session's key was enrolled elsewhere, and so were its grants taken")
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
        """Return what opens the session's answers, 32 bytes for each authority; secret.

        Raises PolicyError before all have granted it.
        """
        with self._transaction() as change:
            opening_keys = [opens for _, opens in _read_enrolment(change, public_key.id)[1]]
        if not opening_keys or not all(opening_keys):
            raise PolicyError("this client was granted no answers: take the key authority's grant first")
        return opening_keys

    def open(
        self, public_key: Any, total: Any, answers: Answers, *, threads: int | None = None
    ) -> NDArray[np.float64]:
        """Open a total with the key authority's answer, or all of them: float64 (count,), position ascending.

        Raises PolicyError before all have granted it, and as :func:`open_answered` does.
        """
        opens: Any = SimpleNamespace(public_key=public_key, opening_keys=self.opening_keys(public_key))
        return open_answered(total, answers, opens, threads=threads)

    def round(self, public_key: Any) -> int:
        """Return the round that the session's key stands at: of earlier ones no frame is made any more."""
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
        """Return the one frame of a round, purpose and part, which is on the disk.

        It is made now, or it was made when somebody first asked for it.

        Parameters
        ----------
        public_key : of the session.
        update, mask, weight, clip : as for the scheme's ``Encryptor``.
        round : the round that the frame is good for; the key moves on to it.
        purpose, part : what is encrypted, and which part of it, below 2**32.
        repeats : whether the same values may have been encrypted in another round: for what does not depend
            on data, or may be alike by nature, such as votes. Where all others send the same as well, the
            difference of two sums is a single client's values. The same are those that are all equal as
            float32, in the same order, whatever purpose, part or weight they are for; of values that are
            nearly the same nothing is noticed.
        threads : None for as many as the work is worth.

        Raises PolicyError for other values, mask or weight than the frame that there is was made of; for a
        round that is over, or more than 2**16 ahead; for values that were encrypted in another round, unless
        they ``repeats``; and without a key of the session. DataError for a disk that fails. Then there is no
        frame, and no key has moved. ParameterError for a purpose that is no text of 1 to 255 bytes, and for
        other types than these. Raises as the ``Encryptor`` does for what cannot be encrypted.
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
            # Another precision or sign of zero makes no other values of them.
            alike = chosen.astype(np.float32, copy=False) + np.float32(0)
        digest = hashlib.sha256(alike.data).digest()
        with self._transaction() as change:
            of_values = change.keys.mac("values", session, digest)
            made_of = change.keys.mac("frame", of_values, how.digest(), int(clip))
            found = change.get(place)
            if found is not None:
                if found[:_MADE_OF_BYTES] != made_of:
                    raise PolicyError(
                        f"a frame of round {place.round} was made for this purpose and part from something "
                        "else, and may have been sent: send that again, or begin a later round"
                    )
                return found[_MADE_OF_BYTES:]
            kept = _read_key(change, session)
            made = kept.made if kept.round == place.round else []
            if place.name in made:
                refuse_altered(f"{place} is missing")
            # The first round that had them tells: no frame is made any more of one that is not the newest.
            values_at = Place("values", session, name=of_values.hex())
            first = change.get(values_at)
            if not repeats and first is not None and first != encoded(place.round):
                raise PolicyError(
                    "these values were encrypted in another round: in two sums they could be told from the "
                    "others'. Train on, and send another update"
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
        """Return a made frame, to be sent again; None for none, or one before the newest round with any."""
        place = _frame_at(public_key.id, round, purpose, part)
        with self._transaction() as change:
            found = change.get(place)
        return None if found is None else found[_MADE_OF_BYTES:]

    def close_round(self, public_key: Any, round: int) -> None:
        """End a round, and all below it: their key is overwritten, and what was not sent is never sent.

        The frames that were made stay to be sent again, until one of a later round is made. Raises
        PolicyError without a key of the session, and for a round more than 2**16 ahead.
        """
        session, number = public_key.id, as_number(round, "round")
        with self._transaction() as change:
            key = _scheme_key(change, public_key)
            if key.round <= number:
                key.advance_to(number + 1)
                _write_key(change, session, key)
