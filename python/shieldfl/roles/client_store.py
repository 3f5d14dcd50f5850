"""The memory of a client: its keys and the frames that it has made, in one SQLite file.

Written and on the disk before a frame leaves, so that no process, whichever of them is ended when, makes a second one.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shieldfl.array_view import Buffer, Update, as_real, as_unsigned, as_update
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.masks import Mask
from shieldfl.roles.client_store_check import check_client_store
from shieldfl.roles.client_tables import (
    LAYOUT,
    Enrolment,
    Frame,
    Granted,
    drop_frames,
    read_enrolment,
    read_frame,
    read_key,
    was_encrypted,
    was_enrolled,
    write_enrolment,
    write_frame,
    write_key,
)
from shieldfl.roles.store_journal import Journal
from shieldfl.roles.store_of_client import StoreOfClient
from shieldfl.roles.store_records import ClientKey, as_number, checked_purpose
from shieldfl.scheme.answers import Answers, open_answered
from shieldfl.scheme.enrolment import (
    SECRET_BYTES,
    EnrolmentRequest,
    Identity,
    grant_key,
    read_grant,
)
from shieldfl.scheme.registry import scheme_of

__all__ = ["ClientStore"]


class ClientStore(StoreOfClient):
    """The memory of one client, in any number of sessions; the same for every scheme in which clients enrol.

    One frame is made for each session, round, purpose and part: :meth:`encrypt` writes it down, with the key as it
    stands then, before it returns it. Asked again with the same values it returns the same bytes, and with others it
    raises, also in another process after this one was ended at any moment. Rounds only go up, and keys with them.

    A session is named by its public key, which the client has pinned: the store has secrets alone, sealed under its
    key. From an old copy an earlier round's frame could be made again, and what was recorded since be opened: see
    :class:`~shieldfl.roles.store.Store`.
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
