"""A key authority's part in rounds: its signatures, a round's keys, and keys shared with clients."""

from __future__ import annotations

import abc
import hashlib
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from shieldfl.array_view import as_frame
from shieldfl.authority.authority_secrets import AuthoritySecrets, Contents, JointKeys
from shieldfl.authority.authority_store import OPENER_HAS_GRANT, AuthorityStore, Grant, StoredKeys
from shieldfl.authority.key_authority import KeyPairAuthority, SumKeyAuthority
from shieldfl.authority.message import Part, piece_of_each
from shieldfl.authority.round_key_check import (
    ANSWER_DOMAIN,
    ANSWER_SIGNATURE,
    KEY_DOMAIN,
    MODEL_DOMAIN,
    SESSION_BYTES,
    RoundKeyCheck,
    checked_round,
    ed25519,
    encode_round_key,
    model_signature_name,
    signed_bytes,
)
from shieldfl.authority.total_opener import (
    TotalOpener,
    WeightBounds,
)
from shieldfl.encryption.enrolment import OPENER, grant_key, sealed_grant
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.encryption.registry import purpose_id, scheme_of
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError
from shieldfl.stateful import Uncopied, refuse_unless

_NOT_RESTORED = "this key authority has no keys: restore the state of the one that made them"


class RoundSigner(Uncopied, abc.ABC):
    """Holds a federation's secrets, begins its rounds, and signs for the newest one."""

    changes: ClassVar[Mapping[str, Any]] = {"_round": int}

    def __init__(self, signing_key: Any, check: RoundKeyCheck) -> None:
        self._signing_key = signing_key
        self.check = check
        self._lock = threading.Lock()
        self._round = -1

    @property
    def newest_round(self) -> int:
        """The round that was begun last; -1 before the first."""
        return self._round

    def settle(self, check: RoundKeyCheck) -> None:
        """Take the check of the public set-up, which is made only after this object."""
        self.check = check

    def sign_model(self, digest: bytes, invited: Part, client: int | None = None) -> dict[str, bytes]:
        """Return a signature that binds the newest round to a model, as a part of its first message.

        It is for one client, or for all with None. Sign only one model of a round: a second one undoes the
        first.
        """
        name = model_signature_name(client)
        return {name: self._signed(MODEL_DOMAIN, name, hashlib.sha256(invited).digest() + digest)}

    def sign_answer(self, phase: str, digest: bytes) -> dict[str, bytes]:
        """Return the part of an answer that signs ``digest`` for the newest round and a phase."""
        return {ANSWER_SIGNATURE: self._signed(ANSWER_DOMAIN, phase, digest)}

    def _signed(self, domain: bytes, name: str, content: bytes) -> bytes:
        signed = signed_bytes(domain, self.check.session, self._round, name, content)
        return bytes(self._signing_key.sign(signed))

    @abc.abstractmethod
    def begin_round(self, round_number: int, purposes: Iterable[str] = ("update",)) -> dict[str, bytes]:
        """Begin a round; return the keys for its first message, as parts, the same at each call.

        Secrets of the round before are wiped. Raises PolicyError for a round before the newest.
        """

    @abc.abstractmethod
    def opener(self, round_number: int, purpose: str = "update") -> TotalOpener[Any]:
        """Return the opener of the round's total for a purpose.

        Raises PolicyError for a round other than the newest, and for wiped keys.
        """

    def wipe(self, round_number: int, purpose: str = "update") -> None:
        """Stop opening totals for a purpose of the newest round, once its one total was answered."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise ParameterError(
            "clients of this federation encrypt to public keys: none enrols, and no lists are answered"
        )

    enrol = revoke = sum_key = _refuse


MakePair = Callable[..., KeyPairAuthority[Any]]
"""Function that makes a key pair, with the arguments of :class:`KeyPairAuthority`."""

_SIGNING_KEY_BYTES = 32


class RoundKeys(RoundSigner):
    """Makes, signs and wipes the keys of one federation's rounds.

    A CKKS pair lives for one round, since a sum with a dishonest ciphertext can reveal the secret key. A
    Paillier pair takes seconds to make and has no such weakness: it serves all rounds, and is signed for
    each.

    Parameters
    ----------
    parameters : the keys' parameters, by purpose: ``"update"``, and what else has a key of its own.
    min_clients, weight_bounds, threads : as for :class:`~shieldfl.authority.key_authority.KeyAuthority`.
    make_pair : function that makes pairs; None to make each pair anew.
    check : check of a federation that was set up before. No keys are made then, and no round begins until the
        state of their maker was restored. None makes keys.
    """

    _why_uncopied = "hold secret keys and are neither copied nor pickled"

    changes: ClassVar = {
        "_secret_signing_key": bytes,
        "_pairs": dict[str, tuple[bool, Contents]],
        "_parts": dict[str, dict[str, bytes]],
    }

    def __init__(
        self,
        parameters: Mapping[str, SchemeParameters[Any]],
        min_clients: int,
        *,
        weight_bounds: WeightBounds = (1.0, 1.0),
        threads: int | None = None,
        make_pair: MakePair | None = None,
        check: RoundKeyCheck | None = None,
    ) -> None:
        signing_key = ed25519().Ed25519PrivateKey.generate()
        verifying_key = signing_key.public_key().public_bytes_raw()
        session = secrets.token_bytes(SESSION_BYTES)
        super().__init__(signing_key, check or RoundKeyCheck(verifying_key, session, dict(parameters)))
        self.min_clients = min_clients
        self._weight_bounds = weight_bounds
        self._threads = threads
        self._make_pair = make_pair or KeyPairAuthority
        # Made now, so that values out of range are refused at set-up; the first round takes these pairs.
        self._held = {} if check else {purpose: self._make(purpose) for purpose in parameters}
        """Every pair whose secret is held, by purpose."""
        self._taken: set[str] = set()
        """The purposes for which the newest round opens totals."""
        self._parts: dict[str, dict[str, bytes]] = {}
        self._has_keys = check is None

    @property
    def _secret_signing_key(self) -> bytes:
        self._check_keys()
        return bytes(self._signing_key.private_bytes_raw())

    @_secret_signing_key.setter
    def _secret_signing_key(self, secret: bytes) -> None:
        refuse_unless(len(secret) == _SIGNING_KEY_BYTES)
        self._signing_key = ed25519().Ed25519PrivateKey.from_private_bytes(secret)
        if self._signing_key.public_key().public_bytes_raw() != self.check.verifying_key:
            raise KeyMismatchError("the state has the signing key of another federation")
        self._has_keys = True

    @property
    def _pairs(self) -> dict[str, tuple[bool, Contents]]:
        """Contents of each held pair, by purpose, with whether the newest round uses the pair."""
        return {purpose: (purpose in self._taken, one.contents()) for purpose, one in self._held.items()}

    @_pairs.setter
    def _pairs(self, pairs: dict[str, tuple[bool, Contents]]) -> None:
        refuse_unless(pairs.keys() <= self.check.parameters.keys())
        self._held = {
            purpose: KeyPairAuthority.of_contents(contents, threads=self._threads)
            for purpose, (_, contents) in pairs.items()
        }
        self._taken = {purpose for purpose, (taken, _) in pairs.items() if taken}

    def check_changed(self) -> None:
        """Raise WireFormatError for pairs with other parameters or another policy than the federation's."""
        own = self.check.parameters
        for purpose, one in self._held.items():
            policy = one.min_clients, one.weight_bounds, one.one_total_per_round
            refuse_unless(policy == (self.min_clients, self._weight_bounds, True))
            refuse_unless(one.public_key.parameters == own[purpose])
        refuse_unless(self._parts.keys() <= own.keys())

    def _check_keys(self) -> None:
        if not self._has_keys:
            raise PolicyError(_NOT_RESTORED)

    def _make(self, purpose: str) -> KeyPairAuthority[Any]:
        parameters, bounds = self.check.parameters[purpose], self._weight_bounds
        return self._make_pair(parameters, self.min_clients, threads=self._threads, weight_bounds=bounds)

    def begin_round(self, round_number: int, purposes: Iterable[str] = ("update",)) -> dict[str, bytes]:
        """Return the round's public keys for these purposes, signed."""
        with self._lock:
            self._check_keys()
            number = checked_round(round_number, self._round)
            if number > self._round:
                for purpose in self._taken.copy():
                    self._wipe(purpose)
                self._round, self._parts = number, {}
            parts: dict[str, bytes] = {}
            for purpose in purposes:
                if purpose not in self._parts:
                    authority = self._held.get(purpose) or self._make(purpose)
                    self._held[purpose] = authority
                    self._taken.add(purpose)
                    frame = authority.public_key.to_bytes()
                    signature = self._signed(KEY_DOMAIN, purpose, frame)
                    self._parts[purpose] = encode_round_key(purpose, frame, signature)
                parts |= self._parts[purpose]
            return parts

    def opener(self, round_number: int, purpose: str = "update") -> KeyPairAuthority:
        with self._lock:
            if round_number == self._round and purpose in self._taken:
                return self._held[purpose]
        raise PolicyError(
            f"there is no secret key for {purpose!r} of round {round_number}: the round was not begun, or is "
            "over and its key wiped. Begin a later round"
        )

    def wipe(self, round_number: int, purpose: str = "update") -> None:
        """Give up a secret key of the newest round; the keys of other rounds are gone already."""
        with self._lock:
            if round_number == self._round:
                self._wipe(purpose)

    def _wipe(self, purpose: str) -> None:
        if purpose in self._taken and not scheme_of(self.check.parameters[purpose]).keys_last:
            self._held.pop(purpose).wipe()
        self._taken.discard(purpose)


class SessionKeys(RoundSigner):
    """Enrols clients, and opens one total of each purpose and round with the keys that it shares with them.

    Parameters
    ----------
    parameters : parameters by purpose: ``"update"``, and what else is encrypted; each purpose has its own
        session.
    min_clients : the fewest clients of a total that is opened, at least 2.
    weight_bounds, threads : as for :class:`RoundKeys`.
    most_values : the most values of a total.
    clients : the final number of clients. With the last one enrolment ends, and the key that opens requests
        is erased.
    aggregator_opens : whether the aggregator gets a grant. Enrolment then ends only once it has the grant.
    check : check of a federation that was set up before; it continues once its authority's state was
        restored.
    store : the authority's store. None for a memory that is part of the state.
    joint : secrets and group for a session in which other authorities have to answer, too; None for a single
        authority, which draws its secrets.
    """

    _why_uncopied = "hold clients' keys and are neither copied nor pickled"

    changes: ClassVar = {"_secrets": bytes, "_memory": bytes, "_begun": list[str]}

    def __init__(
        self,
        parameters: Mapping[str, SchemeParameters[Any]],
        min_clients: int,
        *,
        most_values: int,
        clients: int,
        aggregator_opens: bool,
        weight_bounds: WeightBounds,
        threads: int | None,
        check: RoundKeyCheck | None,
        store: AuthorityStore | None,
        joint: JointKeys | None,
    ) -> None:
        self._owner, group = joint or (AuthoritySecrets(), None)
        members = (self._owner.identity,) if group is None else group.members
        # Several authorities draw their keys for one session, so their group's id identifies it.
        session = secrets.token_bytes(SESSION_BYTES) if group is None else group.id
        made = check or RoundKeyCheck(
            b"".join(one.verifying_key for one in members),
            session,
            dict(parameters),
            b"".join(one.enrolment_key for one in members),
        )
        super().__init__(self._owner.signing_key, made)
        self.min_clients = min_clients
        self._weight_bounds = weight_bounds
        self._most_values = most_values
        self._clients = clients
        self._aggregator_opens = aggregator_opens
        self._has_store = store is not None
        self._threads = threads
        self._begun: list[str] = []
        self._authorities: dict[str, SumKeyAuthority[Any]] = {}
        self._store = store

    def settle(self, check: RoundKeyCheck) -> None:
        """Begin the sessions of a new public set-up; earlier ones continue with the restored state."""
        super().settle(check)
        if self._owner.identity in check.identity.members:
            self._take(self._store or AuthorityStore.in_memory(self._owner.store_key, self._owner.store_id))

    def _take(self, store: AuthorityStore) -> None:
        self._store = store
        self._authorities = {
            purpose: SumKeyAuthority(
                own,
                self.min_clients,
                threads=self._threads,
                weight_bounds=self._weight_bounds,
                most_values=self._most_values,
                owner=self._owner,
                store=store,
                public_key=self.check.session_key(purpose),
                purpose=purpose,
            )
            for purpose, own in self.check.parameters.items()
        }

    @property
    def _secrets(self) -> bytes:
        self._held_store()
        return self._owner.export()

    @_secrets.setter
    def _secrets(self, exported: bytes) -> None:
        try:
            self._owner = AuthoritySecrets(exported)
        except (ParameterError, ValueError):
            refuse_unless(False)
        self._signing_key = self._owner.signing_key
        if self._owner.identity not in self.check.identity.members:
            raise KeyMismatchError("the state has the secrets of another federation")

    @property
    def _memory(self) -> bytes:
        store = self._held_store()
        return b"" if self._has_store else store.serialised()

    @_memory.setter
    def _memory(self, content: bytes) -> None:
        refuse_unless(self._has_store == (not content))
        own = self._owner
        in_memory = content and AuthorityStore.in_memory(own.store_key, own.store_id, content)
        self._take(in_memory or self._held_store())

    def check_changed(self) -> None:
        """Raise WireFormatError for purposes that the federation lacks, and for a store of another round."""
        refuse_unless(self._begun == sorted(set(self._begun) & self.check.parameters.keys()))
        ended = {one.newest_closed_round for one in self._authorities.values()}
        if max(ended) + 1 > max(self._round, 0):
            # The round after the ended ones was begun, though an error may have kept it from some purposes.
            # It may be begun again, unchanged.
            self._round, self._begun = max(ended) + 1, []
        else:
            refuse_unless(max(ended) == max(self._round, 0) - 1)

    def _held_store(self) -> AuthorityStore:
        if self._store is None:
            raise PolicyError(_NOT_RESTORED)
        return self._store

    def enrol(self, client: int | None, request: Part) -> bytes:
        """Take the secret that a client shares, for all purposes; return the grant that opens answers.

        None is the aggregator, which is no client: it shares no key, and no list can name it. The same
        request gets the same grant. The caller vouches for the channel. Raises KeyMismatchError; PolicyError
        for a client or an aggregator that was enrolled before, and once all are; WireFormatError.
        """
        with self._lock:
            store = self._held_store()
            digest = hashlib.sha256(as_frame(request)).digest()
            granted = store.grant(self._session_id, client)
            if granted is not None and granted.request_digest == digest:
                return granted.grant
            if granted is not None and client is None:
                raise PolicyError(OPENER_HAS_GRANT)
            session, members = self.check.manifest_digest, self.check.identity.members
            own = piece_of_each(request, len(members))[members.index(self._owner.identity)]
            named, secret = self._owner.unseal(own, session)
            asking = OPENER if client is None else client
            if named != asking:
                raise KeyMismatchError(f"the request of {asking!r} names another client: {named!r}")
            opening_key = self._owner.opening_key(session)
            grant = Grant(sealed_grant(grant_key(secret, session), session, opening_key), digest)
            waits = (
                self._aggregator_opens and client is not None and store.grant(self._session_id, None) is None
            )
            keys = {
                one.public_key.id: StoredKeys.joined([] if client is None else [one.shared(client, secret)])
                for one in self._authorities.values()
            }
            grants = {key_id: {client: grant} for key_id in keys}
            store.enrol(keys, grants, clients=None if waits else self._clients)
            self._owner.take_enrolment_key(store.keep_enrolment_key(None))
            return grant.grant

    def revoke(self, client: int) -> None:
        """Delete the keys that are shared with a client: no list that names it is answered any more.

        A second call changes nothing.
        """
        store = self._held_store()
        for one in self._authorities.values():
            if store.grant(one.public_key.id, client) is not None:
                store.revoke(one.public_key.id, client)

    def begin_round(self, round_number: int, purposes: Iterable[str] = ("update",)) -> dict[str, bytes]:
        """Begin a round and overwrite the keys of earlier ones; its first message carries no keys."""
        with self._lock:
            self._held_store()
            number = checked_round(round_number, self._round)
            for authority in self._authorities.values():
                if authority.newest_closed_round < number - 1:
                    authority.close_round(number - 1)
            if number > self._round:
                self._round, self._begun = number, []
            self._begun = sorted({*self._begun, *purposes})
            return {}

    @property
    def _session_id(self) -> bytes:
        """Id of the session that records, for all purposes, what was granted."""
        return self.check.session_key("update").id

    def opener(self, round_number: int, purpose: str = "update") -> SumKeyAuthority[Any]:
        with self._lock:
            if round_number == self._round and purpose in self._begun:
                return self._authorities[purpose]
        raise PolicyError(
            f"nothing of round {round_number} is opened for {purpose!r}: the round was not begun, or is "
            "over. Begin a later round"
        )

    def sum_key(self, round_number: int, purpose: str, request: Part) -> bytes:
        """Answer a request of the newest round and a purpose. Raises PolicyError for any other request."""
        authority = self.opener(round_number, purpose)
        asked = authority.public_key.read_request(request)
        if (asked.round, asked.purpose) != (round_number, purpose_id(purpose)):
            raise PolicyError(
                f"the request is not for {purpose!r} of round {round_number}: ask with a total that is"
            )
        return authority.sum_key(request)
