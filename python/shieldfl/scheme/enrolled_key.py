"""What is public of a session in which clients enrol, whatever the scheme."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, Self, TypeVar

from shieldfl.array_view import Buffer, as_frame, as_unsigned
from shieldfl.errors import KeyMismatchError, ParameterError
from shieldfl.scheme.core import CorePublicKey
from shieldfl.scheme.enrolment import AuthorityGroup, AuthorityIdentity, Identity, read_identity
from shieldfl.scheme.keys import SchemePublicKey

__all__ = ["CoreSessionKey", "EnrolledPublicKey"]


class CoreSessionKey(CorePublicKey, Protocol):
    """The core's object: parameters, the digest of a manifest, whose session it is and its epoch."""

    @property
    def manifest(self) -> bytes:
        """32 bytes."""

    @property
    def authority(self) -> bytes:
        """16 bytes that identify the authority, or the group of them."""

    @property
    def epoch(self) -> int:
        """Of the authority."""


Core = TypeVar("Core", bound=CoreSessionKey)


class EnrolledPublicKey(SchemePublicKey[Core]):
    """What is public of a session: parameters, the digest of its manifest, authority and epoch. There is no key in it.

    Clients share keys of their own with the authority, or with each of several.
    """

    __slots__ = ("identity",)
    identity: AuthorityIdentity | AuthorityGroup | None
    """Whose session it is; None where it was read from a frame alone, which has its id. Keys of one session are equal,
    with it or without."""
    _parameters_class: ClassVar[type]
    _core_class: ClassVar[Any]
    _core_request: ClassVar[Any]
    """The core's class of what asks for the key of a total."""

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
        handle: Any = parameters
        key = cls(cls._core_class(handle._handle, as_frame(manifest_digest), of_authority, epoch))
        key.identity = identity
        return key

    def __init__(self, core: Core) -> None:
        super().__init__(core)
        self.identity = None

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
        """32 bytes, of the session's manifest."""
        return self._core.manifest

    @property
    def epoch(self) -> int:
        """The authority's when the session began."""
        return self._core.epoch

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
        """Return the same key with who its authority is. Raises KeyMismatchError for another one, WireFormatError."""
        if not isinstance(identity, AuthorityIdentity | AuthorityGroup):
            identity = read_identity(identity)
        if identity.id != self._core.authority:
            raise KeyMismatchError("the session is of another key authority than this one")
        key = type(self)(self._core)
        key.identity = identity
        return key

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return type(self).from_bytes, (self.to_bytes(), self.identity)
