"""The public half of a key pair, whatever the scheme."""

from __future__ import annotations

from typing import Any, ClassVar, Generic, Self, TypeVar

from shieldfl.array_view import Buffer, as_frame
from shieldfl.errors import ParameterError
from shieldfl.scheme.core import CorePublicKey

__all__ = ["SchemePublicKey"]

Core = TypeVar("Core", bound=CorePublicKey)


class SchemePublicKey(Generic[Core]):
    """Encrypts and identifies; opens nothing. Clients and aggregators get this one."""

    __slots__ = ("_core", "parameters")
    _core: Core
    _scheme: ClassVar[str]
    parameters: Any
    """The ``Parameters`` of its scheme."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.parameters = self._parameters_of(core.parameters)

    @staticmethod
    def _parameters_of(core: Any) -> Any:
        raise NotImplementedError

    @staticmethod
    def _read(frame: Buffer) -> Core:
        raise NotImplementedError

    @classmethod
    def from_bytes(cls, frame: Buffer) -> Self:
        """Read a public key frame. Raises WireFormatError, or ParameterError for what is no valid key."""
        return cls(cls._read(as_frame(frame)))

    def to_bytes(self) -> bytes:
        """Encode as a frame, parameters included."""
        return self._core.to_bytes()

    @property
    def id(self) -> bytes:
        """16 bytes that identify the key in every frame."""
        return self._core.id

    @classmethod
    def core_of(cls, public_key: Any) -> Core:
        """Return the core's object of a key of this class. Raises ParameterError for anything else."""
        if not isinstance(public_key, cls):
            raise ParameterError(
                f"expected a {cls._scheme}.PublicKey, got {type(public_key).__name__}: "
                f"pass authority.public_key of an authority with {cls._scheme}.Parameters"
            )
        return public_key._core

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, SchemePublicKey) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return type(self).from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return f"PublicKey(id={self.id.hex()}, {self.parameters!r})"
