"""The key authority of schemes in which clients enrol: it answers who is in a total with what opens it, once."""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from shieldfl.array_view import Buffer, as_frame, as_threads, as_unsigned
from shieldfl.authority import key_file
from shieldfl.authority.authority_secrets import EXPORTED_BYTES, AuthoritySecrets
from shieldfl.authority.authority_store import AuthorityStore, Grant, Keys, SessionRules
from shieldfl.authority.authority_store import ClientKey as StoredKey
from shieldfl.authority.session import MOST_VALUES, session_key
from shieldfl.authority.store import Position, remove_file
from shieldfl.authority.total_opener import (
    LEAST_THAT_HIDES,
    WEIGHT_BOUNDS,
    Answer,
    Key,
    TotalOpener,
    checked_min_clients,
    checked_weight_bounds,
)
from shieldfl.encryption.answers import open_total, read_answer, sealed_answer
from shieldfl.encryption.encryption import purpose_id
from shieldfl.encryption.enrolment import (
    SECRET_BYTES,
    AuthorityGroup,
    AuthorityIdentity,
    client_number,
    grant_key,
    sealed_grant,
)
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.encryption.registry import scheme_of
from shieldfl.encryption.sum_keys import sum_key as computed_sum_key
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, WireFormatError

__all__ = ["SumKeyAuthority", "reopened_authority"]

_SETTLED = struct.Struct("<Q")
"""What follows the authority's own secrets in a key file: ``most_values``; then the group, where it is in one."""


class SumKeyAuthority(TotalOpener[Key]):
    """Shares a key with each client, and gives for each round one answer: what opens the total of those who are in it.

    It needs the list of participants and a digest of the total, never the total itself. Whom it has answered for, with
    what, is in its store before an answer leaves: a client is answered for once in each round, purpose and part.

    Parameters
    ----------
    params : of a scheme in which clients enrol, such as kahe.Parameters.
    min_clients : the fewest clients of a list that is answered, at least 2.
    one_total_per_round : True; anything else would tell single updates.
    threads : None for as many as the work is worth.
    weight_bounds : of encrypted weights, as for :class:`~shieldfl.authority.key_authority.KeyAuthority`.
    most_values : the most that a total may have.
    owner : the authority's own secrets; None draws them.
    store : its memory, or the path of a file to make for it; None for one that ends with the process. What is in a file
        outlives the process together with what :meth:`save` wrote: see there.
    public_key : of a session that was settled before, by :func:`~shieldfl.authority.session.session_key`; None begins
        one, in the store's epoch.
        Where it has several authorities, this one is among them, and gives its own part of every answer.
    purpose : what the totals that it opens itself are of, as for ``Encryptor``; None for whatever they are of.

    Raises ParameterError, ShieldError where the ``cryptography`` package is missing, PolicyError for a session of
    another epoch than the store's, and what the store raises.
    """

    _why_uncopied = "holds clients' keys and is neither copied nor pickled: open its store where it is used"

    def __init__(
        self,
        params: SchemeParameters[Any, Key],
        min_clients: int = LEAST_THAT_HIDES,
        one_total_per_round: bool = True,
        *,
        threads: int | None = None,
        weight_bounds: tuple[float, float] = WEIGHT_BOUNDS,
        most_values: int = MOST_VALUES,
        owner: AuthoritySecrets | None = None,
        store: AuthorityStore | str | PathLike[str] | None = None,
        public_key: Any = None,
        purpose: str | None = None,
    ) -> None:
        min_clients = checked_min_clients(params, min_clients)
        if one_total_per_round is not True:
            raise ParameterError(
                "one_total_per_round must be True: two answers for one client tell its update"
            )
        checked_weight_bounds(weight_bounds)
        as_threads(threads)
        self.most_values = as_unsigned(most_values, "most_values")
        self._owner = owner or AuthoritySecrets()
        if public_key is not None:
            self._check_session(params, public_key, store if isinstance(store, AuthorityStore) else None)
        self._store = _opened(store, self._owner)
        try:
            self._owner.take_enrolment_key(self._store.keep_enrolment_key(self._owner.enrolment_key))
            if public_key is None:
                public_key = session_key(
                    params, self._owner.identity, min_clients, self.most_values, epoch=self.position.epoch
                )
            super().__init__(public_key, min_clients, weight_bounds, threads, purpose)
            self._opening_key = self._owner.opening_key(public_key.manifest_digest)
            kept = scheme_of(params).rounds_answers_are_kept
            rules = SessionRules(public_key.manifest_digest, min_clients, kept)
            self._store.add_session(public_key.id, rules)
        except BaseException:
            if store is not None and not isinstance(store, AuthorityStore):
                self._store.close()
                remove_file(Path(store))
            raise

    def _check_session(
        self, params: SchemeParameters[Any, Key], public_key: Any, store: AuthorityStore | None
    ) -> None:
        """Raise ParameterError for the session of others, PolicyError for one that this store must not begin.

        None is a store that is not made yet, and not made for a session that it must not have.
        """
        if public_key.parameters != params or self._owner.identity not in public_key.authorities:
            raise ParameterError("the session is of other parameters, or of other key authorities")
        epoch = public_key.identity.epoch_of(self._owner.identity)
        began = public_key.epoch if epoch is None else epoch
        newest = 0 if store is None else store.position.epoch
        if began != newest and not (store is not None and store.has_session(public_key.id)):
            raise PolicyError(
                f"the session was not begun in epoch {newest}, in which the store is. A store that was restored begins "
                "new sessions alone"
            )

    @property
    def _session(self) -> bytes:
        return self._public_key.id

    @property
    def _authorities(self) -> Sequence[AuthorityIdentity]:
        public_key: Any = self._public_key
        authorities: Sequence[AuthorityIdentity] = public_key.authorities
        return authorities

    def enrol(self, client: int | str) -> Any:
        """Enrol a client in the same process, and return its secret ``ClientKey``, which can open answers.

        ``client`` is a number below 2**31, or a name. Raises PolicyError for one that was enrolled before, revoked or
        not; ParameterError, also in a session of several authorities, each of which accepts a request of its own.
        """
        if len(self._authorities) > 1:
            raise ParameterError(
                "the session has several authorities: take ClientKey.requests, and accept one at each"
            )
        secret = bytearray(secrets.token_bytes(SECRET_BYTES))
        try:
            self._enrol(client, secret)
            key = self._scheme.ClientKey.of_secret(self._public_key, client, secret)
        finally:
            secret[:] = bytes(SECRET_BYTES)
        key.take_grant(self.grant(client))
        return key

    def accept(self, request: Buffer) -> int | str:
        """Enrol who sent a request, as ``ClientKey.request`` made it, and return its name or number.

        Whoever calls this vouches for the channel: that the request came from whom it names, and not from whoever
        carries ciphertexts, who could enrol inventions. Raises WireFormatError; KeyMismatchError for a request to
        another authority or session; PolicyError for a client that was enrolled before, and once enrolment has ended.
        """
        client, secret = self._owner.unseal(request, self._session)
        self._enrol(client, secret, hashlib.sha256(as_frame(request)).digest())
        return client

    def end_enrolment(self) -> None:
        """Erase what opens requests, in memory and in the store: nobody is enrolled any more, in any of its sessions.

        Call it when the last client is enrolled: from then on requests that somebody has recorded tell nothing,
        whatever is stolen from this authority. It goes on answering, also after a restart.
        """
        self._store.end_enrolment()
        self._owner.take_enrolment_key(None)

    def shared(self, client: int | str, secret: Buffer) -> Keys:
        """Return what a store keeps of a client that shares this secret: to enrol it in several sessions at once."""
        key = self._scheme.ClientKey.of_secret(self._public_key, client, secret)
        return {key.client: _stored(key)}

    def _enrol(self, client: int | str, secret: Buffer, request_digest: bytes | None = None) -> None:
        grant = sealed_grant(grant_key(secret, self._session), self._session, self._opening_key)
        grants = {client_number(client): Grant(grant, request_digest)}
        self._store.enrol(self._session, self.shared(client, secret), grants)

    def grant(self, client: int | str) -> bytes:
        """Return what lets an enrolled client open answers, sealed for it alone. Raises PolicyError for others."""
        found = self._store.grant(self._session, client_number(client))
        if found is None:
            raise PolicyError(f"client {client!r} is not enrolled: accept its request first")
        return found.grant

    def revoke(self, client: int | str) -> None:
        """Delete a client's key: no list that names it is answered any more. Raises PolicyError; ParameterError.

        What it was granted it keeps: it can open answers of this session until another one begins.
        """
        self._store.revoke(self._session, client_number(client))

    def sum_key(self, request: Buffer) -> bytes:
        """Answer who is in a total with what opens it, signed for this request and sealed for those with a grant.

        The same request gets the same bytes, for the newest rounds. Raises WireFormatError; KeyMismatchError for a
        request of another session; PolicyError for lists below ``min_clients``, with duplicates, or with clients that
        are not enrolled, were revoked or answered for in this round before, for more than ``most_values`` values, and
        for rounds that are over.
        """
        frame = bytes(as_frame(request))
        asked = self._scheme.PublicKey.read_request(frame)
        if asked.key_id != self._session:
            raise KeyMismatchError("the request is of another session: ask the authority of that one")
        if asked.count > self.most_values:
            raise PolicyError(
                f"the request is for {asked.count:,} values, more than the {self.most_values:,} that were settled: "
                "raise most_values, or send the model in parts"
            )
        return self._store.answer(
            self._session,
            asked.round,
            f"{asked.purpose.hex()}/{asked.part}",
            asked.participants,
            asked.total_digest,
            lambda held: self._computed(asked, frame, held),
        )

    def sum_key_for(self, round_number: int, purpose: str, request: Buffer) -> bytes:
        """Answer as :meth:`sum_key` does a request of this round and purpose. Raises PolicyError for another one's."""
        asked = self._scheme.PublicKey.read_request(request)
        if (asked.round, asked.purpose) != (round_number, purpose_id(purpose)):
            raise PolicyError(
                f"the request is not for {purpose!r} of round {round_number}: ask with the total of what runs"
            )
        return self.sum_key(request)

    def _computed(self, asked: Any, frame: bytes, held: Keys) -> tuple[bytes, Keys]:
        keys = [self._live(client, held[client], asked.round) for client, _ in asked.participants]
        own: Any = self._public_key
        sum_key = computed_sum_key(own, frame, keys, threads=self._threads or None)
        answer = sealed_answer(self._owner.signing_key, self._opening_key, self._session, frame, sum_key)
        sum_key[:] = bytes(len(sum_key))
        return answer, {key.client: _stored(key) for key in keys}

    def _live(self, client: int, stored: StoredKey, round_number: int) -> Any:
        key = self._scheme.ClientKey(self._public_key, client, stored.key, stored.round)
        key.advance_to(round_number)
        return key

    def close_round(self, round_number: int) -> None:
        """End a round, and all below it: their keys are overwritten, and what was not asked for stays closed."""
        number = as_unsigned(round_number, "round_number")

        def ratchet(held: Keys) -> Keys:
            return {
                client: _stored(self._live(client, stored, max(stored.round, number + 1)))
                for client, stored in held.items()
            }

        self._store.close_round(self._session, number, ratchet)

    @property
    def newest_closed_round(self) -> int:
        """The newest round that was ended, -1 before the first."""
        return self._store.newest_closed_round(self._session)

    def has_opened(self, total: Any) -> bool:
        """Say whether the request of this total was answered."""
        asked = self._scheme.PublicKey.read_request(total.request())
        return self._store.has_answered(self._session, asked.round, asked.total_digest)

    def _answer(self, total: Any) -> Answer:
        if len(self._authorities) > 1:
            raise PolicyError("one of several authorities opens nothing: open with the answers of all")
        request, identity = total.request(), self._owner.identity
        sealed = self.sum_key(request)
        sum_key = read_answer(identity.verifying_key, self._opening_key, self._session, request, sealed)
        own: Any = self._public_key
        return Answer(*open_total(own, total, [sum_key], threads=self._threads or None))

    @property
    def position(self) -> Position:
        """How far its memory has come: kept elsewhere, it tells an old copy of the file (``at_least``)."""
        return self._store.position

    def save(self, path: str | Path, passphrase: str) -> None:
        """Write what makes the authority itself, under the passphrase; file mode 0600.

        Once, before the first client enrols: what happens afterwards is in its store. ``KeyAuthority.load`` needs both.
        Raises PolicyError for an authority whose memory ends with the process; ParameterError; OSError.
        """
        if self._store.is_in_memory:
            raise PolicyError(
                "this authority's memory ends with the process, and without it nothing goes on: make the authority "
                "with store=, the path of a file"
            )
        identity: Any = self._public_key
        group = identity.identity.to_bytes() if len(self._authorities) > 1 else b""
        secret = bytearray(self._owner.export() + _SETTLED.pack(self.most_values) + group)
        contents = key_file.Contents(
            public_key=self._public_key.to_bytes(),
            min_clients=self.min_clients,
            one_total_per_round=True,
            opened={},
            weight_bounds=self.weight_bounds,
            secret=secret,
        )
        try:
            key_file.write(Path(path), passphrase, contents)
        finally:
            secret[:] = bytes(len(secret))

    def close(self) -> None:
        """Give the store up, for another process to open; nothing more is answered here."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"KeyAuthority(key_id={self._session.hex()}, min_clients={self.min_clients})"


def reopened_authority(
    contents: key_file.Contents,
    public_key: Any,
    store: str | PathLike[str],
    *,
    threads: int | None,
    at_least: tuple[int, int],
    restored: bool,
) -> SumKeyAuthority[Any]:
    """Return the authority that goes on from a store.

    Parameters
    ----------
    contents, public_key : of its key file; the secret is overwritten.
    store, at_least, restored : as :class:`AuthorityStore` has them. With a restored one it begins a new session.
    threads : None for as many as the work is worth.

    Raises WireFormatError for a key file without such secrets, PolicyError for one of several authorities with a store
    that was restored and for a store that does not have the session, and what the store raises.
    """
    try:
        owner = AuthoritySecrets(bytes(contents.secret[:EXPORTED_BYTES]))
        (most_values,) = _SETTLED.unpack_from(contents.secret, EXPORTED_BYTES)
        group = bytes(contents.secret[EXPORTED_BYTES + _SETTLED.size :])
    except (ParameterError, ValueError, struct.error):
        raise WireFormatError("the key file has no secrets of an authority that clients enrol with") from None
    finally:
        contents.secret[:] = bytes(len(contents.secret))
    if group and restored:
        raise PolicyError(
            "several authorities begin a new session together: open the store with restored=True, and settle "
            "one by session_key, in which the group says the new epoch"
        )
    identity = AuthorityGroup.from_bytes(group) if group else owner.identity
    memory = AuthorityStore(store, owner.store_key, owner.store_id, at_least=at_least, restored=restored)
    try:
        if not restored and not memory.has_session(public_key.id):
            # A session that is begun here would forget what another copy of the store has answered in it.
            raise PolicyError(
                "the store does not have the session of this key file: open the store that it was saved beside, or, if "
                "that is lost, begin a new session with restored=True"
            )
        return SumKeyAuthority(
            public_key.parameters,
            contents.min_clients,
            threads=threads,
            weight_bounds=contents.weight_bounds,
            most_values=most_values,
            owner=owner,
            store=memory,
            public_key=None if restored else public_key.with_identity(identity),
        )
    except BaseException:
        memory.close()
        raise


def _stored(key: Any) -> StoredKey:
    secret = key.export_secret()
    stored = StoredKey(key.round, bytes(secret))
    secret[:] = bytes(len(secret))
    return stored


def _opened(store: AuthorityStore | str | PathLike[str] | None, owner: AuthoritySecrets) -> AuthorityStore:
    if isinstance(store, AuthorityStore):
        return store
    if store is None:
        return AuthorityStore.in_memory(owner.store_key, owner.store_id)
    return AuthorityStore.create(store, owner.store_key, owner.store_id)
