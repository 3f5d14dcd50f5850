"""What a client shares with the key authority, or with each of several, whatever the scheme."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_frame, as_unsigned
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError
from shieldfl.scheme.enrolled_key import EnrolledPublicKey
from shieldfl.scheme.enrolment import (
    MOST_AUTHORITIES,
    SECRET_BYTES,
    EnrolmentRequest,
    Identity,
    client_number,
    grant_key,
    read_grant,
)
from shieldfl.stateful import Uncopied

__all__ = ["EnrolledClientKey"]

Key = TypeVar("Key", bound=EnrolledPublicKey[Any])


class EnrolledClientKey(Uncopied, Generic[Key]):
    """A client's key in a session, at a round. Its owner keeps it from everybody but the key authority.

    It goes on by the number of the round, and what it was before is wiped: whoever gets hold of it opens nothing of
    earlier rounds. Where a session has several authorities, it is a secret with each, and each of them has to answer.
    """

    __slots__ = ("_cores", "_grant_keys", "_opening_keys", "public_key")
    _why_uncopied = "holds a secret and is neither copied nor pickled"
    _public_key_class: ClassVar[type[EnrolledPublicKey[Any]]]

    def __init__(self, public_key: Key, client: int, secret: Buffer, round: int = 0) -> None:
        """Take a key that stands at a round, as :meth:`export_secret` gives it: 32 bytes for each authority.

        Raises ParameterError.
        """
        key_id, number = self._core_id(public_key), _client(client)
        at = as_unsigned(round, "round")
        self.public_key = public_key
        """Of the session."""
        self._cores = [
            _core.ClientKey(public_key._scheme, key_id, number, at, part) for part in _parts(secret)
        ]
        self._grant_keys: list[bytes] = []
        self._opening_keys: dict[int, bytes] = {}

    @classmethod
    def _core_id(cls, public_key: Key) -> bytes:
        return bytes(cls._public_key_class.core_of(public_key).id)

    @classmethod
    def of_secret(cls, public_key: Key, client: int | str, secret: Buffer) -> Self:
        """Make the key of round 0 from what client and authority share, 32 bytes; for several, one after the other.

        Raises ParameterError.
        """
        key = cls.__new__(cls)
        key.public_key = public_key
        key_id, number = cls._core_id(public_key), client_number(client)
        shared = _parts(secret)
        key._cores = [_core.ClientKey.of_session(public_key._scheme, part, key_id, number) for part in shared]
        key._grant_keys = [grant_key(part, key_id) for part in shared]
        key._opening_keys = {}
        return key

    @classmethod
    def requests(
        cls,
        public_key: Key,
        client: int | str,
        identity: Identity | None = None,
    ) -> tuple[Self, list[bytes]]:
        """Draw secrets, and return the key of round 0 with a request for each authority that enrols it, sealed for it.

        Arguments and errors are those of :meth:`request`; requests are in the order of the group.
        """
        if identity is not None:
            public_key = public_key.with_identity(identity)
        authorities = public_key.authorities
        drawn = bytearray(secrets.token_bytes(SECRET_BYTES * len(authorities)))
        try:
            key = cls.of_secret(public_key, client, drawn)
            sealed = [
                EnrolmentRequest.of(authority, public_key.id, client, bytes(part)).to_bytes()
                for authority, part in zip(authorities, _parts(drawn), strict=True)
            ]
            return key, sealed
        finally:
            drawn[:] = bytes(len(drawn))

    @classmethod
    def request(
        cls, public_key: Key, client: int | str, identity: Identity | None = None
    ) -> tuple[Self, bytes]:
        """Draw a secret, and return the key of round 0 with the request that enrols it: sealed for the authority.

        Parameters
        ----------
        public_key : of the session, as the client has pinned it.
        client : a number below 2**31, or a name.
        identity : of the authority, or what its ``to_bytes`` gave, for a public key that was read from a frame alone.

        Raises ParameterError where neither says who the authority is, or there are several: take :meth:`requests`;
        KeyMismatchError where it is another one's.
        """
        key, sealed = cls.requests(public_key, client, identity)
        if len(sealed) != 1:
            raise ParameterError("the session has several authorities: take requests(), one for each")
        return key, sealed[0]

    def take_grant(self, grant: Buffer) -> None:
        """Take what lets this client open answers, of each authority.

        Raises PolicyError for a key that was not made at enrolment, such as one of an exported secret;
        KeyMismatchError for a grant of another client or session.
        """
        if not self._grant_keys:
            raise PolicyError("a grant is taken by the key that was made at enrolment")
        *others, last = enumerate(self._grant_keys)
        for number, key in others:
            try:
                self._opening_keys[number] = read_grant(key, self.public_key.id, grant)
            except KeyMismatchError:
                continue
            return
        self._opening_keys[last[0]] = read_grant(last[1], self.public_key.id, grant)

    @property
    def opening_keys(self) -> Sequence[bytes]:
        """What opens answers, 32 bytes for each authority; secret. Raises PolicyError before all have granted it."""
        if not self._opening_keys or len(self._opening_keys) < len(self._cores):
            raise PolicyError("this client was granted no answers: take the key authority's grant first")
        return [self._opening_keys[number] for number in range(len(self._cores))]

    def check_complete(self) -> None:
        """Raise ParameterError for one authority's part of the key, with which nothing is to be encrypted."""
        identity = self.public_key.identity
        if identity is not None and len(identity.members) != len(self._cores):
            raise ParameterError(
                f"the session has {len(identity.members)} authorities, and the key is shared with {len(self._cores)}: "
                "make it by requests(), of which each authority gets one"
            )

    @property
    def client(self) -> int:
        """The client's number in the session."""
        return self._cores[0].client

    @property
    def round(self) -> int:
        """The round that it stands at; earlier ones are over."""
        return self._cores[0].round

    def advance_to(self, round: int) -> None:
        """Go on to a round. Raises PolicyError for an earlier one, or one more than 2**16 rounds later."""
        number = as_unsigned(round, "round")
        for core in self._cores:
            core.advance_to(number)

    def _go_on_to(self, round: int) -> None:
        """Go on to a round unless it is past it already, as where another thread was faster."""
        for core in self._cores:
            if core.round < round:
                core.advance_to(round)

    def export_secret(self) -> bytearray:
        """Return the key at its round, 32 bytes for each authority, for a store; the receiver overwrites it."""
        exported = bytearray()
        for core in self._cores:
            part = core.export_secret()
            exported += part
            part[:] = bytes(len(part))
        return exported

    def __repr__(self) -> str:
        return f"ClientKey(client={self.client}, round={self.round})"


def _parts(secret: Buffer) -> list[memoryview]:
    """Return the secret with each authority."""
    frame = memoryview(as_frame(secret)).cast("B")
    count, rest = divmod(len(frame), SECRET_BYTES)
    if rest or not 1 <= count <= MOST_AUTHORITIES:
        raise ParameterError(
            f"a client's secret must have 32 bytes for each authority, {MOST_AUTHORITIES} at most"
        )
    return [frame[SECRET_BYTES * n : SECRET_BYTES * (n + 1)] for n in range(count)]


def _client(client: int) -> int:
    number = as_unsigned(client, "client")
    if number >= 2**32:
        raise ParameterError("client must be below 2**32")
    return number
