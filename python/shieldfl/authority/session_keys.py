"""The key authority's side of rounds where clients enrol: one memory and one session for each purpose."""

from __future__ import annotations

import hashlib
import secrets
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from os import PathLike
from typing import Any, ClassVar

from shieldfl.array_view import as_frame, as_unsigned
from shieldfl.authority.authority_secrets import AuthoritySecrets, JointKeys
from shieldfl.authority.authority_store import OPENER_HAS_GRANT, AuthorityStore, Grant, KeptMessage
from shieldfl.authority.message import Part, piece_of_each
from shieldfl.authority.round_key_check import SESSION_BYTES, RoundKeyCheck
from shieldfl.authority.round_keys import RoundSigner
from shieldfl.authority.store import Position
from shieldfl.authority.sum_key_authority import SumKeyAuthority
from shieldfl.authority.total_opener import checked_min_clients, checked_weight_bounds
from shieldfl.encryption.enrolment import OPENER, grant_key, sealed_grant
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.errors import DataError, KeyMismatchError, ParameterError, PolicyError
from shieldfl.stateful import refuse_unless

_POSITION = struct.Struct("<QQ")


class SessionKeys(RoundSigner):
    """Enrols clients, and opens one total of each purpose in each round by what it shares with those who are in it.

    Parameters
    ----------
    parameters : by purpose: ``"update"``, and what else is encrypted.
    min_clients : the fewest clients of a total that is opened, at least 2.
    weight_bounds : of encrypted weights.
    most_values : the most that a total may have.
    clients : how many there will be: with the last one enrolment ends, and what opens requests is erased.
    aggregator_opens : whether the aggregator is to get a grant: enrolment then does not end before it has, either.
    threads : for opening; None for as many as the work is worth.
    check : of a federation that was set up before: it goes on once the state of its authority was taken.
    store : the path of the file that its memory is in: made at set-up, and there before a state is taken, which then
        says how far it had come at least. None for a memory that is part of the state.
    joint : of a session in which others have to answer, too; None for an authority alone, which draws its secrets.

    Raises ParameterError, and ShieldError where the ``cryptography`` package is missing.
    """

    _why_uncopied = "hold clients' keys and are neither copied nor pickled"

    changes: ClassVar = {"_secrets": bytes, "_memory": bytes, "_begun": list[str], "_known": int}

    def __init__(
        self,
        parameters: Mapping[str, SchemeParameters[Any, Any]],
        min_clients: int,
        *,
        most_values: int,
        clients: int,
        aggregator_opens: bool = False,
        weight_bounds: tuple[float, float] = (1.0, 1.0),
        threads: int | None = None,
        check: RoundKeyCheck | None = None,
        store: str | PathLike[str] | None = None,
        joint: JointKeys | None = None,
    ) -> None:
        for own in parameters.values():
            min_clients = checked_min_clients(own, min_clients)
        self._owner = AuthoritySecrets() if joint is None else joint.owner
        members = (self._owner.identity,) if joint is None else joint.group.members
        # Of several authorities each has drawn its keys for this session, and with them what tells it from others.
        session = secrets.token_bytes(SESSION_BYTES) if joint is None else joint.group.id
        made = check or RoundKeyCheck(
            b"".join(one.verifying_key for one in members),
            session,
            dict(parameters),
            b"".join(one.enrolment_key for one in members),
        )
        super().__init__(self._owner.signing_key, made)
        self.min_clients = min_clients
        self._weight_bounds = checked_weight_bounds(weight_bounds)
        self._most_values = most_values
        self._clients = clients
        self._aggregator_opens = aggregator_opens
        self._path = store
        self._threads = threads
        self._begun: list[str] = []
        self._known = 0
        """The row of the store's journal of the newest reply that came into the state that this goes on from."""
        self._authorities: dict[str, SumKeyAuthority[Any]] = {}
        self._store: AuthorityStore | None = None

    def settle(self, check: RoundKeyCheck) -> None:
        """Begin the sessions of a public set-up; of one that was set up before, restoring the state does."""
        super().settle(check)
        if self._owner.identity in check.identity.members:
            key, owner_id = self._owner.store_key, self._owner.store_id
            made = (
                AuthorityStore.in_memory if self._path is None else partial(AuthorityStore.create, self._path)
            )
            self._take(made(key, owner_id))

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
        if self._path is None:
            return store.serialised()
        return _POSITION.pack(*store.position)

    @_memory.setter
    def _memory(self, content: bytes) -> None:
        key, owner_id = self._owner.store_key, self._owner.store_id
        if self._path is None:
            self._take(AuthorityStore.in_memory(key, owner_id, content))
            return
        refuse_unless(len(content) == _POSITION.size)
        position = Position(*_POSITION.unpack(content))
        store = self._store
        if store is not None and store.position < position:
            raise DataError("this authority's store has not come as far as the state: open the newest file")
        made = None
        try:
            if store is None:
                store = made = AuthorityStore(self._path, key, owner_id, at_least=position)
            self._take(store)
        except BaseException as error:
            if made is not None:
                made.close()
            # An old copy, or one that is held: it is the file that is not right.
            if isinstance(error, PolicyError):
                raise DataError(str(error)) from error
            raise

    def check_changed(self) -> None:
        """Raise WireFormatError for purposes that the federation does not have, and a memory of another round."""
        super().check_changed()
        refuse_unless(self._begun == sorted(set(self._begun) & self.check.parameters.keys()))
        refuse_unless(0 <= self._known <= self._held_store().position.rows)
        ended = {one.newest_closed_round for one in self._authorities.values()}
        if max(ended) + 1 > max(self._round, 0):
            # What the memory has is true, and in a file it may have come since: the round after those that have ended
            # was begun, which an error may have kept from some purposes. It may be begun again, as it was.
            self._round, self._begun = max(ended) + 1, []
        else:
            refuse_unless(max(ended) == max(self._round, 0) - 1)

    def _held_store(self) -> AuthorityStore:
        if self._store is None:
            raise PolicyError("this key authority has no keys: restore the state of the one that made them")
        return self._store

    def _granted(self, request: Part, name: int | str, why: str) -> tuple[bytes, bytes]:
        """Return the secret in a request and what is granted for it; KeyMismatchError for one in another name."""
        session, members = self.check.manifest_digest, self.check.identity.members
        own = piece_of_each(request, len(members))[members.index(self._owner.identity)]
        named, secret = self._owner.unseal(own, session)
        if named != name:
            raise KeyMismatchError(why)
        return secret, sealed_grant(grant_key(secret, session), session, self._owner.opening_key(session))

    def enrol(self, client: int, request: Part) -> bytes:
        """Take what a client shares with the authority, for all purposes; return what lets it open answers.

        The same request gets the same again. Whoever calls this vouches for the channel. Raises KeyMismatchError for a
        request of another client, session or to another authority, PolicyError for a client that was enrolled before,
        and once all are there, WireFormatError.
        """
        with self._lock:
            store = self._held_store()
            digest = hashlib.sha256(as_frame(request)).digest()
            granted = store.grant(self._session_id, client)
            if granted is not None and granted.request_digest == digest:
                return granted.grant
            secret, grant = self._granted(
                request, client, f"the request that client {client} sent is of another client"
            )
            keys = {one.public_key.id: one.shared(client, secret) for one in self._authorities.values()}
            grants = {key_id: {client: Grant(grant, digest)} for key_id in keys}
            waits = self._aggregator_opens and store.grant(self._session_id, None) is None
            store.enrol_in(keys, grants, clients=None if waits else self._clients)
            self._owner.take_enrolment_key(store.keep_enrolment_key(None))
            return grant

    def end_enrolment(self) -> None:
        """Erase what opens requests before all have come: those that have not do not any more, nor the aggregator."""
        with self._lock:
            self._held_store().end_enrolment()
            self._owner.take_enrolment_key(None)

    def grant_opener(self, request: Part) -> bytes:
        """Return what opens answers, sealed for the aggregator. It is no client: no list can name it.

        The same request gets the same again. Raises PolicyError for another one, since one aggregator alone opens, and
        once enrolment has ended; KeyMismatchError for the request of a client, session or to another authority;
        WireFormatError.
        """
        with self._lock:
            store = self._held_store()
            digest = hashlib.sha256(as_frame(request)).digest()
            granted = store.grant(self._session_id, None)
            if granted is not None:
                if granted.request_digest != digest:
                    raise PolicyError(OPENER_HAS_GRANT)
                return granted.grant
            _, grant = self._granted(
                request, OPENER, "the request is a client's: the aggregator makes one of its own"
            )
            sessions = [one.public_key.id for one in self._authorities.values()]
            store.grant_opener(sessions, Grant(grant, digest), clients=self._clients)
            self._owner.take_enrolment_key(store.keep_enrolment_key(None))
            return grant

    def revoke(self, client: int) -> None:
        """Delete what is shared with a client; a second time changes nothing."""
        store = self._held_store()
        for one in self._authorities.values():
            if store.grant(one.public_key.id, client) is not None:
                store.revoke(one.public_key.id, client)

    def begin_round(self, round_number: int, purposes: Iterable[str] = ("update",)) -> dict[str, bytes]:
        """Begin a round: the keys of those before are overwritten. None comes along with its first message.

        Raises PolicyError for a round that is over; and, where the state that this goes on from is older than its
        store, while a reply of an earlier round is not known: the model that comes of it would not be the one that this
        would sign.
        """
        number = as_unsigned(round_number, "round_number")
        with self._lock:
            store = self._held_store()
            if number < self._round:
                raise PolicyError(
                    f"round {number} is over since round {self._round} began, and its keys were overwritten: begin a "
                    "later round"
                )
            store.check_replies_are_known(KeptMessage(self._session_id, number), self._known)
            for authority in self._authorities.values():
                if authority.newest_closed_round < number - 1:
                    authority.close_round(number - 1)
            if number > self._round:
                self._round, self._begun = number, []
            self._begun = sorted({*self._begun, *purposes})
            return {}

    @property
    def _session_id(self) -> bytes:
        """The session that says for all purposes what was granted, and which messages have left."""
        return self.check.session_key("update").id

    def keep_first_message(self, round_number: int, digest: bytes) -> None:
        """Keep, before it leaves, what a round's first message is. Raises PolicyError for another one than before."""
        self._held_store().keep_message(KeptMessage(self._session_id, round_number), digest)

    @contextmanager
    def replying(self, phase: str, round_number: int) -> Iterator[Callable[[bytes], None]]:
        """See :meth:`RoundSigner.replying`: which replies there are is in the store."""
        store, reply = self._held_store(), KeptMessage(self._session_id, round_number, phase)
        store.check_replies_are_known(reply, self._known)
        yield partial(store.keep_message, reply)
        # Not before the reply is in the state: one that is kept, and lost by an error here, is not known.
        self._known = max(self._known, store.row_of_message(reply))

    def opener(self, round_number: int, purpose: str = "update") -> SumKeyAuthority[Any]:
        """Return what opens the purpose's totals."""
        with self._lock:
            if round_number == self._round and purpose in self._begun:
                return self._authorities[purpose]
        raise PolicyError(
            f"nothing of round {round_number} is opened for {purpose!r}: the round was not begun, or is over. Begin a "
            "later round"
        )

    def sum_key(self, round_number: int, purpose: str, request: Part) -> bytes:
        """Answer a list of the newest round. Raises as :meth:`SumKeyAuthority.sum_key_for` does."""
        return self.opener(round_number, purpose).sum_key_for(round_number, purpose, request)

    def wipe(self, round_number: int, purpose: str = "update") -> None:
        """Do nothing: the memory has the answer, and gives no other one."""

    def close(self) -> None:
        """Give the file of its memory up, for another process to go on with."""
        if self._store is not None:
            self._store.close()
