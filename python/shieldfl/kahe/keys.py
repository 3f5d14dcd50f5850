"""What a client and the key authority share."""

from __future__ import annotations

import secrets

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_frame, as_unsigned
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.kahe.parameters import PublicKey
from shieldfl.scheme.enrolment import (
    SECRET_BYTES,
    AuthorityIdentity,
    EnrolmentRequest,
    client_number,
    grant_key,
    read_grant,
)
from shieldfl.stateful import Uncopied

__all__ = ["ClientKey"]


class ClientKey(Uncopied):
    """A client's key in a session, at a round. Its owner keeps it from everybody but the key authority.

    It goes on by the number of the round, and what it was before is wiped: whoever gets hold of it opens nothing of
    earlier rounds.
    """

    __slots__ = ("_core", "_grant_key", "_opening_key", "public_key")
    _why_uncopied = "holds a secret and is neither copied nor pickled"

    def __init__(self, public_key: PublicKey, client: int, secret: Buffer, round: int = 0) -> None:
        """Take a key that stands at a round: 32 bytes, as :meth:`export_secret` gives them. Raises ParameterError."""
        key_id, number = PublicKey.core_of(public_key).id, _client(client)
        self.public_key = public_key
        """Of the session."""
        self._core = _core.KaheClientKey(key_id, number, as_unsigned(round, "round"), as_frame(secret))
        self._grant_key: bytes | None = None
        self._opening_key: bytes | None = None

    @classmethod
    def of_secret(cls, public_key: PublicKey, client: int | str, secret: Buffer) -> ClientKey:
        """Make the key of round 0 from what client and authority share, 32 bytes. Raises ParameterError."""
        key = cls.__new__(cls)
        key.public_key = public_key
        key_id = PublicKey.core_of(public_key).id
        key._core = _core.KaheClientKey.of_session(as_frame(secret), key_id, client_number(client))
        key._grant_key, key._opening_key = grant_key(secret, key_id), None
        return key

    @classmethod
    def request(
        cls, public_key: PublicKey, client: int | str, identity: AuthorityIdentity | None = None
    ) -> tuple[ClientKey, bytes]:
        """Draw a secret, and return the key of round 0 with the request that enrols it: sealed for the authority.

        Parameters
        ----------
        public_key : of the session, as the client has pinned it.
        client : a number below 2**31, or a name.
        identity : of the authority, for a public key that was read from bytes.

        Raises ParameterError where neither says who the authority is; KeyMismatchError where it is another one's.
        """
        if identity is not None:
            public_key = public_key.with_identity(identity)
        if public_key.identity is None:
            raise ParameterError("the public key does not say whose it is: pass the authority's identity")
        secret = bytearray(secrets.token_bytes(SECRET_BYTES))
        try:
            key = cls.of_secret(public_key, client, secret)
            request = EnrolmentRequest.of(public_key.identity, public_key.id, client, bytes(secret))
            return key, request.to_bytes()
        finally:
            secret[:] = bytes(SECRET_BYTES)

    def take_grant(self, grant: Buffer) -> None:
        """Take what lets this client open answers. Raises KeyMismatchError for a grant of another client or session."""
        if self._grant_key is None:
            raise PolicyError("a grant is taken by the key that was made at enrolment")
        self._opening_key = read_grant(self._grant_key, self.public_key.id, grant)

    @property
    def opening_key(self) -> bytes:
        """What opens this session's answers, 32 bytes; secret. Raises PolicyError before a grant was taken."""
        if self._opening_key is None:
            raise PolicyError("this client was granted no answers: take the key authority's grant first")
        return self._opening_key

    @property
    def client(self) -> int:
        """The client's number in the session."""
        return self._core.client

    @property
    def round(self) -> int:
        """The round that it stands at; earlier ones are over."""
        return self._core.round

    def advance_to(self, round: int) -> None:
        """Go on to a round. Raises PolicyError for an earlier one, or one more than 2**16 rounds later."""
        self._core.advance_to(as_unsigned(round, "round"))

    def export_secret(self) -> bytearray:
        """Return the key at its round, 32 bytes, for a store; the receiver overwrites it."""
        return self._core.export_secret()

    def __repr__(self) -> str:
        return f"ClientKey(client={self.client}, round={self.round})"


def _client(client: int) -> int:
    number = as_unsigned(client, "client")
    if number >= 2**32:
        raise ParameterError("client must be below 2**32")
    return number
