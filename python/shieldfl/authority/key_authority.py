"""Key authorities: the only holders of secret keys, which decide what may be opened with them.

An authority with a pair of keys opens totals. If clients enrol, an authority answers a list of clients once,
with the key that opens their total.
"""

from __future__ import annotations

import hashlib
import secrets
import struct
import threading
from os import PathLike
from pathlib import Path
from typing import Any, Self, TypeVar, overload

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_frame, as_threads, as_unsigned
from shieldfl.authority.authority_secrets import (
    EXPORTED_BYTES,
    AuthoritySecrets,
    Contents,
    read_key_file,
    write_key_file,
)
from shieldfl.authority.authority_store import AuthorityStore, Grant, SessionRules, StoredKeys
from shieldfl.authority.private_file import remove_store_file
from shieldfl.authority.store import MEMORY, Position
from shieldfl.authority.total_opener import (
    LEAST_THAT_HIDES,
    WEIGHT_BOUNDS,
    Answer,
    Key,
    TotalOpener,
    WeightBounds,
    checked_min_clients,
    checked_weight_bounds,
)
from shieldfl.encryption.enrolment import (
    SECRET_BYTES,
    AuthorityGroup,
    AuthorityIdentity,
    ClientKey,
    EnrolledPublicKey,
    client_number,
    grant_key,
    open_total,
    read_answer,
    sealed_answer,
    sealed_grant,
)
from shieldfl.encryption.opening import DECRYPTORS
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.encryption.registry import REGISTRY, Scheme, SchemeTotal, scheme_of
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError, WireFormatError

__all__ = ["KeyAuthority", "SumKeyAuthority"]

MOST_OPENED_COEFFICIENTS = 2**32
"""Most coefficients that one key opens.

docs/reference/packings-reference.md proves, for up to so many, that no opened sum holds encryption noise.
"""
MOST_VALUES = 2**32
"""Default of the most values in an answered total: a number in a request decides how much is computed."""

SessionKey = TypeVar("SessionKey", bound=EnrolledPublicKey)

_MANIFEST_DOMAIN = b"shieldfl session 1\0"
_SETTLED = struct.Struct("<Q")
"""Layout of ``most_values``, which follows the authority's secrets in a key file.

The bytes of its group follow, if it is in one.
"""


class KeyAuthority(TotalOpener[Key]):
    """Makes keys of a scheme, gives their public part away, and opens totals or answers the roles that do.

    It makes a :class:`KeyPairAuthority`, or, if clients enrol, a :class:`SumKeyAuthority`, which takes more
    settings. It refuses (PolicyError) a total of fewer than ``min_clients`` clients and a second, different
    total of a round: the difference of two totals can be one client's update. The same total gives the same
    values again, so that a lost answer can be asked for again.

    **Under** ``ckks`` **make a new one for each round, and wipe() the old one.** A client that alters its own
    ciphertexts, or an aggregator that lies, gets the whole secret key from an opened sum. With it, that party
    reads every update under this key that it has recorded, of all rounds
    (docs/explanation/dishonest-parties.md). Methods follow this rule by
    :class:`~shieldfl.authority.round_keys.RoundKeys`.

    Parameters
    ----------
    params : parameters of a scheme. A Paillier key takes seconds to make.
    min_clients : the fewest clients of a total that is opened, at least 1 and at most ``params.max_clients``.
        Below 3 a sum hides nothing among those who know one of its parts: choose that only on purpose.
    one_total_per_round : False gives up the protection against differences, and computes each answer anew;
        only for a pair of keys.
    threads : for opening; None for as many as the work is worth.
    weight_bounds : the smallest and the largest encrypted weight of a client, above 0; by default 1/64 and 1.
        Participants can encrypt any weight, also a negative one. So a mean is given only if weights within
        these bounds can have the total's sum.

    Example
    -------
    >>> import numpy as np
    >>> import shieldfl as sf
    >>> authority = sf.KeyAuthority(sf.kahe.Parameters(max_clients=8), min_clients=3)
    >>> keys = [authority.enrol(f"clinic-{number}") for number in range(3)]
    >>> aggregator = sf.kahe.Aggregator(authority.public_key)
    >>> for key in keys:
    ...     aggregator.add(sf.kahe.Encryptor(key).encrypt(np.ones(5), round=1))
    >>> total = aggregator.total()
    >>> sums = sf.kahe.open(total, authority.sum_key(total.request()), keys[0])
    >>> assert np.allclose(sums, 3.0)
    """

    @overload
    def __new__(
        cls, params: SchemeParameters[SessionKey], *settled: Any, **options: Any
    ) -> SumKeyAuthority[SessionKey]: ...

    @overload
    def __new__(
        cls, params: SchemeParameters[Key], *settled: Any, **options: Any
    ) -> KeyPairAuthority[Key]: ...

    def __new__(cls, params: Any, *settled: Any, **options: Any) -> Any:
        """Make an authority of the kind that the parameters' scheme needs."""
        kind: Any = cls
        if cls is KeyAuthority:
            kind = SumKeyAuthority if scheme_of(params).enrols else KeyPairAuthority
        return object.__new__(kind)

    def contents(self) -> Contents:
        """Return the contents of the file that :meth:`save` writes; the receiver overwrites their secret."""
        raise NotImplementedError

    def save(self, path: str | Path, passphrase: str) -> None:
        """Write the authority's secrets and settings, under the passphrase; file mode 0600.

        The file of a key pair includes what was opened so far: save again after opening, or a restarted
        authority forgets which totals it opened. If clients enrol, save once, before the first one does:
        later events are in the authority's store, and :meth:`load` needs both. Needs the ``cryptography``
        package. Raises PolicyError for an authority whose memory ends with the process, and for keys that
        were wiped; ParameterError for an empty passphrase; OSError.
        """
        contents = self.contents()
        try:
            write_key_file(Path(path), passphrase, contents)
        finally:
            contents.secret[:] = bytes(len(contents.secret))

    @staticmethod
    def load(
        path: str | Path,
        passphrase: str,
        *,
        threads: int | None = None,
        store: str | Path | None = None,
        at_least: tuple[int, int] = (0, 0),
        restored: bool = False,
    ) -> Any:
        """Read an authority that :meth:`save` wrote; if clients enrol, continue from its store as well.

        Parameters
        ----------
        path, passphrase : the key file's.
        threads : for opening; None for as many as the work is worth.
        store : path of the store that the authority was made with, if clients enrol.
        at_least : a position that the store is known to have reached: an older file is refused.
        restored : whether the store is a backup. Its sessions end, and the returned authority begins a new
            one, in a new epoch: save it again, and have clients enrol anew.

        Raises KeyMismatchError for a wrong passphrase, an altered file or another authority's store;
        WireFormatError for a file that is no key file, and for a damaged store; PolicyError for an old copy
        of a store, and for one that another process holds; DataError; ParameterError for a store that is
        missing, or that the authority does not have.
        """
        contents = read_key_file(Path(path), passphrase)
        scheme = _scheme_of_key_frame(contents.public_key)
        if scheme.enrols != (store is not None):
            raise ParameterError(
                "the key file belongs to an authority that has a store: pass its path as store"
                if scheme.enrols
                else "the key file belongs to an authority that has no store: pass none"
            )
        if store is None:
            return KeyPairAuthority.of_contents(contents, threads=threads)
        public_key = scheme.PublicKey.from_bytes(contents.public_key)
        try:
            owner = AuthoritySecrets(bytes(contents.secret[:EXPORTED_BYTES]))
            (most_values,) = _SETTLED.unpack_from(contents.secret, EXPORTED_BYTES)
            group = bytes(contents.secret[EXPORTED_BYTES + _SETTLED.size :])
        except (ParameterError, ValueError, struct.error):
            raise WireFormatError(
                "the key file has no secrets of an authority that clients enrol with"
            ) from None
        finally:
            contents.secret[:] = bytes(len(contents.secret))
        if group and restored:
            raise PolicyError(
                "several authorities begin a new session together: open the store with restored=True, and "
                "make one by session_key() for a group with the new epoch"
            )
        identity = AuthorityGroup.from_bytes(group) if group else owner.identity
        memory = AuthorityStore(store, owner.store_key, owner.store_id, at_least=at_least, restored=restored)
        try:
            if not restored and not memory.has_session(public_key.id):
                # A session begun here would not know what another copy of the store has answered in it.
                raise PolicyError(
                    "the store does not have the session of this key file: open the store that belongs to "
                    "it; if that is lost, begin a new session with restored=True"
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

    def __repr__(self) -> str:
        return f"KeyAuthority(key_id={self.public_key.id.hex()}, min_clients={self.min_clients})"


def _scheme_of_key_frame(public_key: bytes) -> Scheme:
    kind = _core.summarise_frame(public_key).kind_name
    for name, scheme in REGISTRY.items():
        if kind == f"{name} public key":
            return scheme
    raise WireFormatError("the key file has a scheme that this version does not know: update shieldfl")


class KeyPairAuthority(KeyAuthority[Key]):
    """Holds one secret key, which opens one total of each round, and at most 2^32 coefficients in all.

    If a total is asked for again, it gets its first answer, and nothing is computed: a right and a faulty
    opening of one Paillier total reveal the key. To bound memory, only the newest answer is kept; an older
    total is opened again, with the same result and all checks. The number of clients is what the total
    states: an aggregator that lies about it is outside the threat model (docs/explanation/threat-model.md).

    Parameters
    ----------
    params, min_clients, one_total_per_round, threads, weight_bounds : as for :class:`KeyAuthority`.
    """

    _why_uncopied = "holds a secret key and is neither copied nor pickled: use save()"

    def __init__(
        self,
        params: SchemeParameters[Key],
        min_clients: int = LEAST_THAT_HIDES,
        one_total_per_round: bool = True,
        *,
        threads: int | None = None,
        weight_bounds: WeightBounds = WEIGHT_BOUNDS,
    ) -> None:
        scheme = scheme_of(params)
        min_clients = checked_min_clients(params, min_clients)
        checked_weight_bounds(weight_bounds)  # before a key is made, which can take seconds
        decryptor = DECRYPTORS[scheme.PublicKey._core_class](params._handle)
        self._begin(scheme, decryptor, min_clients, weight_bounds, threads)
        self.one_total_per_round = bool(one_total_per_round)

    def _begin(
        self,
        scheme: Scheme,
        decryptor: Any,
        min_clients: int,
        bounds: WeightBounds,
        threads: int | None,
    ) -> None:
        super().__init__(scheme.PublicKey(decryptor.public_key), min_clients, bounds, threads)
        self._decryptor = decryptor
        self._opened: dict[int, str] = {}
        """Digest of the opened total, by round."""
        self._newest: tuple[str, Answer] | None = None
        """Digest of the total that was opened last, and the first answer to it."""
        self.opened_coefficients = 0
        """Number of coefficients (CKKS) or values (Paillier) that were opened under the key; at most 2^32."""
        self._lock = threading.Lock()

    @classmethod
    def of_contents(cls, contents: Contents, *, threads: int | None = None) -> KeyPairAuthority:
        """Make an authority from the result of :meth:`contents`, whose secret is overwritten.

        Raises WireFormatError.
        """
        try:
            scheme = _scheme_of_key_frame(contents.public_key)
            pair = scheme.PublicKey._core_class
            decryptor = DECRYPTORS[pair].import_secret(pair.from_bytes(contents.public_key), contents.secret)
        finally:
            contents.secret[:] = bytes(len(contents.secret))
        authority: KeyPairAuthority = object.__new__(cls)
        authority._begin(scheme, decryptor, contents.min_clients, contents.weight_bounds, threads)
        authority.one_total_per_round = contents.one_total_per_round
        authority._opened = contents.opened
        authority.opened_coefficients = contents.opened_coefficients
        return authority

    def _answer(self, total: SchemeTotal) -> Answer:
        digest = hashlib.sha256(total.to_bytes()).hexdigest()
        more = self._scheme.opened_coefficients(total)
        with self._lock:
            before = self._opened.get(total.round)
            if self.one_total_per_round:
                if before not in (None, digest):
                    raise PolicyError(
                        f"a different total of round {total.round} was opened before: the difference of the "
                        "two could be one client's update. Start a new round"
                    )
                if self._newest is not None and self._newest[0] == digest:
                    sums, weight_sum = self._newest[1]
                    return sums.copy(), weight_sum
            cost = 0 if before == digest else more  # the same sums once more tell nothing more
            if self.opened_coefficients + cost > MOST_OPENED_COEFFICIENTS:
                raise PolicyError(
                    f"this key has opened {self.opened_coefficients:,} coefficients, and {more:,} more would "
                    f"exceed the {MOST_OPENED_COEFFICIENTS:,} that one key may open: make a new key authority"
                )
            sums, weight_sum = self._held_decryptor().open(total.parsed, self._threads)
            # Noted before it leaves.
            self.opened_coefficients += cost
            self._opened[total.round] = digest
            if self.one_total_per_round:
                self._newest = digest, (sums.copy(), weight_sum)
        return sums, weight_sum

    def has_opened(self, total: SchemeTotal) -> bool:
        """Return whether a total of the same round was opened."""
        with self._lock:
            return total.round in self._opened

    def contents(self) -> Contents:
        """Return the key pair, and what was opened so far; the receiver overwrites the secret."""
        with self._lock:
            return Contents(
                public_key=self.public_key.to_bytes(),
                min_clients=self.min_clients,
                one_total_per_round=self.one_total_per_round,
                opened=dict(self._opened),
                weight_bounds=self.weight_bounds,
                secret=self._held_decryptor().export_secret(),
                opened_coefficients=self.opened_coefficients,
            )

    def wipe(self) -> None:
        """Overwrite the secret key in memory: afterwards opening and saving raise PolicyError."""
        with self._lock:
            # The only reference: the core overwrites the key's memory as it frees it.
            self._decryptor = self._newest = None

    def _held_decryptor(self) -> Any:
        if self._decryptor is None:
            raise PolicyError("the secret key was wiped: make a new KeyAuthority for the next round")
        return self._decryptor


def session_key(
    params: SchemeParameters[Key],
    authority: AuthorityIdentity | AuthorityGroup,
    min_clients: int,
    most_values: int = MOST_VALUES,
    *,
    epoch: int = 0,
) -> Key:
    """Begin a session: return its public key, on which all participants agree.

    Each of several authorities can make it.

    Parameters
    ----------
    params : the session's parameters.
    authority : the session's authority; a group if several authorities have to answer.
    min_clients, most_values : rules to which the session's authority keeps, so that clients may rely on them.
    epoch : the epoch of the authority's store; a group states one for each member.

    Raises ParameterError.
    """
    least = checked_min_clients(params, min_clients)
    settled = struct.pack("<QQ", least, as_unsigned(most_values, "most_values"))
    manifest = _MANIFEST_DOMAIN + secrets.token_bytes(32) + params.id + settled
    digest, number = hashlib.sha256(manifest).digest(), max(as_unsigned(epoch, "epoch"), *authority.epochs)
    made: Key = scheme_of(params).PublicKey.of_session(params, digest, authority, number)
    return made


class SumKeyAuthority(KeyAuthority[SessionKey]):
    """Shares a key with each client, and answers a round once: with the key that opens its clients' total.

    It needs the list of participants and a digest of the total, never the total itself. Before an answer
    leaves, the store records it and its clients: a client is answered for once in each round, purpose and
    part.

    Parameters
    ----------
    params : parameters of a scheme in which clients enrol, such as kahe.Parameters.
    min_clients : the fewest clients of a list that is answered, at least 2.
    one_total_per_round : must be True; two totals of a round would reveal single updates.
    threads, weight_bounds : as for :class:`KeyAuthority`.
    most_values : the most values of a total.
    owner : the authority's own secrets; None draws them.
    store : the authority's memory, or the path of a file to make for it; None for a memory that ends with the
        process. To continue in another process, an authority needs this file and the one that :meth:`save`
        wrote.
    public_key : public key of a session that :func:`session_key` began; None begins one, in the store's
        epoch. In a session of several authorities, this one must be among them, and gives its part of every
        answer.
    purpose : purpose of the totals that the authority opens itself, as for ``Encryptor``; None for any.

    Raises ParameterError; ShieldError if the ``cryptography`` package is missing; PolicyError for a session
    of another epoch than the store's; and what the store raises.
    """

    _why_uncopied = "holds clients' keys and is neither copied nor pickled: open its store where it is used"

    def __init__(
        self,
        params: SchemeParameters[SessionKey],
        min_clients: int = LEAST_THAT_HIDES,
        one_total_per_round: bool = True,
        *,
        threads: int | None = None,
        weight_bounds: WeightBounds = WEIGHT_BOUNDS,
        most_values: int = MOST_VALUES,
        owner: AuthoritySecrets | None = None,
        store: AuthorityStore | str | PathLike[str] | None = None,
        public_key: Any = None,
        purpose: str | None = None,
    ) -> None:
        min_clients = checked_min_clients(params, min_clients)
        if one_total_per_round is not True:
            raise ParameterError(
                "one_total_per_round must be True: two answers for one client reveal its update"
            )
        self.most_values = as_unsigned(most_values, "most_values")
        self._owner = owner or AuthoritySecrets()
        if public_key is not None:
            self._check_session(params, public_key, store if isinstance(store, AuthorityStore) else None)
        key, owner_id = self._owner.store_key, self._owner.store_id
        if isinstance(store, AuthorityStore):
            self._store = store
        elif store is None:
            self._store = AuthorityStore.in_memory(key, owner_id)
        else:
            self._store = AuthorityStore.create(store, key, owner_id)
        try:
            self._owner.take_enrolment_key(self._store.keep_enrolment_key(self._owner.enrolment_key))
            if public_key is None:
                public_key = session_key(
                    params, self._owner.identity, min_clients, self.most_values, epoch=self.position.epoch
                )
            super().__init__(public_key, min_clients, weight_bounds, threads, purpose)
            self._session = public_key.id
            self._opening_key = self._owner.opening_key(public_key.manifest_digest)
            kept = 1 if scheme_of(params).long_answers else 2  # of the newest rounds' answers
            rules = SessionRules(public_key.manifest_digest, min_clients, kept)
            self._store.add_session(public_key.id, rules)
        except BaseException:
            if store is not None and not isinstance(store, AuthorityStore):
                self._store.close()
                remove_store_file(Path(store))
            raise

    def _check_session(
        self, params: SchemeParameters[SessionKey], public_key: Any, store: AuthorityStore | None
    ) -> None:
        """Raise ParameterError for others' sessions, PolicyError for one that this store must not begin.

        With None the store is made later, and only if the session passes.
        """
        if public_key.parameters != params or self._owner.identity not in public_key.authorities:
            raise ParameterError("the session has other parameters, or other key authorities")
        epoch = public_key.identity.epoch_of(self._owner.identity)
        began = public_key.epoch if epoch is None else epoch
        newest = 0 if store is None else store.position.epoch
        if began != newest and not (store is not None and store.has_session(public_key.id)):
            raise PolicyError(
                f"the session was not begun in epoch {newest}, which is the store's: a restored store begins "
                "new sessions only"
            )

    def enrol(self, client: int | str) -> Any:
        """Enrol a client in the same process, and return its secret ``ClientKey``, which can open answers.

        ``client`` is a number below 2**31, or a name. Raises PolicyError for a client that was enrolled
        before, revoked or not; ParameterError, also in a session of several authorities, where each accepts a
        request of its own.
        """
        if len(self.public_key.authorities) > 1:
            raise ParameterError(
                "the session has several authorities: use ClientKey.requests(), and accept one at each"
            )
        secret = bytearray(secrets.token_bytes(SECRET_BYTES))
        try:
            self._enrol(client, secret)
            key = ClientKey.of_secret(self.public_key, client, secret)
        finally:
            secret[:] = bytes(SECRET_BYTES)
        key.take_grant(self.grant(client))
        return key

    def accept(self, request: Buffer) -> int | str:
        """Enrol the sender of a request that ``ClientKey.request`` made, and return its name or number.

        The caller vouches for the channel: the request came from the client that it names, and not from a
        carrier of ciphertexts, who could enrol invented clients. Raises WireFormatError; KeyMismatchError for
        a request to another authority or session; PolicyError for a client that was enrolled before, and once
        enrolment has ended.
        """
        client, secret = self._owner.unseal(request, self._session)
        self._enrol(client, secret, hashlib.sha256(as_frame(request)).digest())
        return client

    def end_enrolment(self) -> None:
        """Erase the key that opens requests, in memory and store: nobody can enrol in any of its sessions.

        Call it after the last client's enrolment. From then on recorded requests reveal nothing, whatever is
        stolen from this authority. The authority still answers, also after a restart.
        """
        self._store.end_enrolment()
        self._owner.take_enrolment_key(None)

    def shared(self, client: int | str, secret: Buffer) -> StoredKeys:
        """Return a client's key as a store keeps it, to enrol the client in several sessions at once."""
        key = ClientKey.of_secret(self.public_key, client, secret)
        exported = key.export_secret()
        try:
            return StoredKeys.of(key.client, key.round, exported)
        finally:
            exported[:] = bytes(len(exported))

    def _enrol(self, client: int | str, secret: Buffer, request_digest: bytes | None = None) -> None:
        grant = sealed_grant(grant_key(secret, self._session), self._session, self._opening_key)
        granted: dict[int | None, Grant] = {client_number(client): Grant(grant, request_digest)}
        self._store.enrol({self._session: self.shared(client, secret)}, {self._session: granted})

    def grant(self, client: int | str) -> bytes:
        """Return the grant by which an enrolled client opens answers, sealed for it alone.

        Raises PolicyError for other clients.
        """
        found = self._store.grant(self._session, client_number(client))
        if found is None:
            raise PolicyError(f"client {client!r} is not enrolled: accept its request first")
        return found.grant

    def revoke(self, client: int | str) -> None:
        """Delete a client's key: no list that names it is answered any more.

        The client keeps its grant: it can open answers of this session until another one begins. Raises
        PolicyError; ParameterError.
        """
        self._store.revoke(self._session, client_number(client))

    def sum_key(self, request: Buffer) -> bytes:
        """Answer a request with its total's key, signed for the request and sealed for roles with a grant.

        The same request gets the same bytes, for the newest rounds. Raises WireFormatError; KeyMismatchError
        for a request of another session; PolicyError for a list below ``min_clients``, with duplicates, or
        with clients that are not enrolled, were revoked or answered for in this round before; for more than
        ``most_values`` values; and for rounds that are over.
        """
        frame = bytes(as_frame(request))
        asked = self._scheme.PublicKey.read_request(frame)
        if asked.key_id != self._session:
            raise KeyMismatchError("the request belongs to another session: ask that session's authority")
        if asked.count > self.most_values:
            raise PolicyError(
                f"the request is for {asked.count:,} values, more than the {self.most_values:,} that the "
                "session allows: raise most_values, or send the model in parts"
            )
        return self._store.answer(
            self._session,
            asked.round,
            f"{asked.purpose.hex()}/{asked.part}",
            asked.participants,
            asked.total_digest,
            lambda held: self._computed(asked, frame, held),
        )

    def _computed(self, asked: Any, frame: bytes, held: StoredKeys) -> bytes:
        self._advance(held, asked.round)
        core, threads = self.public_key._core, as_threads(self._threads or None)
        sum_key = asked.sum_key_of_stored(core, held.clients, held.rounds, held.secrets, threads)
        answer = sealed_answer(self._owner.signing_key, self._opening_key, self._session, frame, sum_key)
        sum_key[:] = bytes(len(sum_key))
        return answer

    def _advance(self, held: StoredKeys, round_number: int) -> None:
        _core.ClientKey.advance_all(self._scheme.name, held.rounds, held.secrets, round_number)

    def close_round(self, round_number: int) -> None:
        """End a round and all earlier ones: overwrite their keys. Totals without an answer stay closed."""
        number = as_unsigned(round_number, "round_number")
        self._store.close_round(self._session, number, lambda held: self._advance(held, number + 1))

    @property
    def newest_closed_round(self) -> int:
        """The newest round that was ended, -1 before the first."""
        return self._store.newest_closed_round(self._session)

    def has_opened(self, total: Any) -> bool:
        """Return whether the request for this total was answered."""
        asked = self._scheme.PublicKey.read_request(total.request())
        return self._store.has_answered(self._session, asked.round, asked.total_digest)

    def _answer(self, total: Any) -> Answer:
        if len(self.public_key.authorities) > 1:
            raise PolicyError("one of several authorities opens nothing: open with the answers of all")
        request, identity = total.request(), self._owner.identity
        sealed = self.sum_key(request)
        sum_key = read_answer(identity.verifying_key, self._opening_key, self._session, request, sealed)
        return open_total(self.public_key, total, [sum_key], threads=self._threads or None)

    @property
    def position(self) -> Position:
        """How far the store has come: noted elsewhere, it reveals an old copy of the file (``at_least``)."""
        return self._store.position

    def contents(self) -> Contents:
        """Return the authority's secrets and settings; the receiver overwrites the secret."""
        if self._store._path is MEMORY:
            raise PolicyError(
                "this authority's memory ends with the process, so it cannot be saved: make the authority "
                "with store=, the path of a file"
            )
        identity: Any = self.public_key.identity
        group = identity.to_bytes() if len(self.public_key.authorities) > 1 else b""
        return Contents(
            public_key=self.public_key.to_bytes(),
            min_clients=self.min_clients,
            one_total_per_round=True,
            opened={},
            weight_bounds=self.weight_bounds,
            secret=bytearray(self._owner.export() + _SETTLED.pack(self.most_values) + group),
        )

    def close(self) -> None:
        """Close the store, so that another process can open it; this authority answers nothing more."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
