"""Keys: what is public of a pair or a session and says the scheme, and what a client shares with an authority."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any, ClassVar, Self, TypeVar

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_frame, as_unsigned
from shieldfl.encryption.enrolment import (
    MOST_AUTHORITIES,
    SECRET_BYTES,
    AuthorityGroup,
    AuthorityIdentity,
    Identity,
    client_number,
    grant_key,
    read_grant,
    read_identity,
    sealed_request,
)
from shieldfl.encryption.parameters import SchemeParameters
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError
from shieldfl.stateful import Uncopied


class SchemePublicKey:
    """Encrypts and identifies; opens nothing. A scheme's own says which classes, of the core too, are the scheme's."""

    parameters: Any
    _scheme: ClassVar[str]
    _parameters_class: ClassVar[type[SchemeParameters[Any]]]
    _core_class: ClassVar[Any]
    _core_ciphertext: ClassVar[type]
    _core_encryptor: ClassVar[Any]
    _core_aggregator: ClassVar[Any]
    _batch_class: ClassVar[Any]
    _total_class: ClassVar[Any]

    def __init__(self, core: Any) -> None:
        self._core: Any = core
        self.parameters = self._parameters_class._wrap(core.parameters)

    @classmethod
    def from_bytes(cls, frame: Buffer) -> Self:
        """Read a public key frame. Raises WireFormatError, or ParameterError for what is no valid key."""
        return cls(cls._core_class.from_bytes(as_frame(frame)))

    def to_bytes(self) -> bytes:
        """Encode as a frame, parameters included."""
        return bytes(self._core.to_bytes())

    @property
    def id(self) -> bytes:
        """16 bytes that identify the key in every frame."""
        return bytes(self._core.id)

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, SchemePublicKey) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return type(self).from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return f"PublicKey(id={self.id.hex()}, {self.parameters!r})"


Checked = TypeVar("Checked", bound=SchemePublicKey)


def checked_key(public_key: Any, kind: type[Checked]) -> Checked:
    """Return a public key of this kind. Raises ParameterError for anything else."""
    if not isinstance(public_key, kind):
        found = type(public_key)
        raise ParameterError(
            f"expected a PublicKey, such as authority.public_key of an authority with parameters of this scheme; got a "
            f"{found.__module__.removeprefix('shieldfl.encryption.')}.{found.__name__}"
        )
    return public_key


class EnrolledPublicKey(SchemePublicKey):
    """What is public of a session: parameters, the digest of its manifest, authority and epoch. There is no key in it.

    Clients share keys of their own with the authority, or with each of several. What is drawn for all, such as the
    uniform polynomials of a ring, is drawn from it, and so is never anybody's choice.
    """

    identity: AuthorityIdentity | AuthorityGroup | None = None
    """Whose session it is; None where it was read from a frame alone, which has its id. Keys of one session are equal,
    with it or without."""
    _core_request: ClassVar[Any]

    @classmethod
    def of_session(
        cls,
        parameters: Any,
        manifest_digest: Buffer,
        authority: AuthorityIdentity | AuthorityGroup | Buffer,
        epoch: int = 0,
    ) -> Self:
        """Make that of a session from its manifest.

        Parameters
        ----------
        parameters : of the session, of this scheme.
        manifest_digest : 32 bytes of the manifest that the authority signed.
        authority : who it is, or the group of those that have to answer, or 16 bytes that identify it.
        epoch : the authority's, below 2**32; it goes up where its memory was restored. Of a group, the highest.

        Raises ParameterError.
        """
        if not isinstance(parameters, cls._parameters_class):
            raise ParameterError(
                f"parameters must be {cls._scheme}.Parameters, not {type(parameters).__name__}"
            )
        if as_unsigned(epoch, "epoch") >= 2**32:
            raise ParameterError("epoch must be below 2**32")
        identity = authority if isinstance(authority, AuthorityIdentity | AuthorityGroup) else None
        of_authority = identity.id if identity else as_frame(authority)
        key = cls(cls._core_class(parameters._handle, as_frame(manifest_digest), of_authority, epoch))
        key.identity = identity
        return key

    @classmethod
    def from_bytes(cls, frame: Buffer, identity: Identity | None = None) -> Self:
        """Read a public key frame, which has the authority's id alone.

        Parameters
        ----------
        frame : what :meth:`to_bytes` gave.
        identity : of the authority, or the bytes that ``public_key.identity.to_bytes()`` gave; clients enrol with it.

        Raises WireFormatError; KeyMismatchError for the identity of others; ParameterError for what is no valid key.
        """
        key = super().from_bytes(frame)
        return key if identity is None else key.with_identity(identity)

    @property
    def manifest_digest(self) -> bytes:
        return bytes(self._core.manifest)

    @property
    def epoch(self) -> int:
        """The authority's when the session began."""
        return int(self._core.epoch)

    @property
    def authorities(self) -> Sequence[AuthorityIdentity]:
        """Those that have to answer, in the order of their group. Raises ParameterError where they are not known."""
        if self.identity is None:
            raise ParameterError(
                "the public key does not say whose it is, as a frame has the authority's id alone: read it by "
                "PublicKey.from_bytes(frame, identity=...), which takes what public_key.identity.to_bytes() gives"
            )
        return self.identity.members

    def with_identity(self, identity: Identity) -> Self:
        """Return the same key with its authority's identity. Raises KeyMismatchError for another's, WireFormatError."""
        if not isinstance(identity, AuthorityIdentity | AuthorityGroup):
            identity = read_identity(identity)
        if identity.id != self._core.authority:
            raise KeyMismatchError("the session is of another key authority than this one")
        key = type(self)(self._core)
        key.identity = identity
        return key

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return type(self).from_bytes, (self.to_bytes(), self.identity)

    @classmethod
    def read_request(cls, frame: Buffer) -> Any:
        """Read what ``Total.request`` gave: the core's object, with what is asked for. Raises WireFormatError."""
        return cls._core_request.from_bytes(as_frame(frame))


class ClientKey(Uncopied):
    """A client's key in a session, at a round. Its owner keeps it from everybody but the key authority.

    It goes on by the number of the round, and what it was before is wiped: whoever gets hold of it opens nothing of
    earlier rounds. Where a session has several authorities, it is a secret with each, and each of them has to answer.
    """

    _why_uncopied = "holds a secret and is neither copied nor pickled"

    def __init__(self, public_key: EnrolledPublicKey, client: int, secret: Buffer, round: int = 0) -> None:
        """Take a key that stands at a round, as :meth:`export_secret` gives it: 32 bytes for each authority.

        Raises ParameterError.
        """
        key_id, number = checked_key(public_key, EnrolledPublicKey).id, as_unsigned(client, "client")
        if number >= 2**32:
            raise ParameterError("client must be below 2**32")
        self.public_key, scheme, at = public_key, public_key._scheme, as_unsigned(round, "round")
        self._cores = [_core.ClientKey(scheme, key_id, number, at, part) for part in _parts(secret)]
        """The core's keys, one for each authority."""
        self._grant_keys: list[bytes] = []
        self._opening_keys: dict[int, bytes] = {}

    @classmethod
    def of_secret(cls, public_key: EnrolledPublicKey, client: int | str, secret: Buffer) -> Self:
        """Make the key of round 0 from what client and authority share, 32 bytes; for several, one after the other.

        Raises ParameterError.
        """
        key, shared = cls(public_key, number := client_number(client), secret), _parts(secret)
        scheme, key_id = public_key._scheme, public_key.id
        key._cores = [_core.ClientKey.of_session(scheme, part, key_id, number) for part in shared]
        key._grant_keys = [grant_key(part, key_id) for part in shared]
        return key

    @classmethod
    def requests(
        cls,
        public_key: EnrolledPublicKey,
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
                sealed_request(authority, public_key.id, client, bytes(part))
                for authority, part in zip(authorities, _parts(drawn), strict=True)
            ]
            return key, sealed
        finally:
            drawn[:] = bytes(len(drawn))

    @classmethod
    def request(
        cls, public_key: EnrolledPublicKey, client: int | str, identity: Identity | None = None
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
        for number, key in enumerate(self._grant_keys, 1):
            try:
                self._opening_keys[number - 1] = read_grant(key, self.public_key.id, grant)
                return
            except KeyMismatchError:
                if number == len(self._grant_keys):
                    raise

    @property
    def opening_keys(self) -> Sequence[bytes]:
        """What opens answers, 32 bytes for each authority; secret. Raises PolicyError before all have granted it."""
        if not self._opening_keys or len(self._opening_keys) < len(self._cores):
            raise PolicyError("this client was granted no answers: take the key authority's grant first")
        return [self._opening_keys[number] for number in range(len(self._cores))]

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
    frame = memoryview(as_frame(secret)).cast("B")
    count, rest = divmod(len(frame), SECRET_BYTES)
    if rest or not 1 <= count <= MOST_AUTHORITIES:
        raise ParameterError(
            f"a client's secret must have 32 bytes for each authority, {MOST_AUTHORITIES} at most"
        )
    return [frame[SECRET_BYTES * n : SECRET_BYTES * (n + 1)] for n in range(count)]
