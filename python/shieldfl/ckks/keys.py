"""The public half of a key pair. The secret half never leaves the key authority."""

from __future__ import annotations

from typing import Any

from shieldfl import _core
from shieldfl.array_view import Buffer, as_frame
from shieldfl.ckks.parameters import Parameters
from shieldfl.errors import ParameterError

__all__ = ["PublicKey", "core_key"]


class PublicKey:
    """Encrypts and identifies; opens nothing. Clients and aggregators get this one."""

    __slots__ = ("_core", "parameters")

    def __init__(self, core: _core.CkksPublicKey) -> None:
        self._core = core
        self.parameters = Parameters._wrap(core.parameters)

    @classmethod
    def from_bytes(cls, frame: Buffer) -> PublicKey:
        """Read a public key frame. Raises WireFormatError, or ParameterError for parameters of another version."""
        return cls(_core.CkksPublicKey.from_bytes(as_frame(frame)))

    def to_bytes(self) -> bytes:
        """Encode as a frame, parameters included."""
        return self._core.to_bytes()

    @property
    def id(self) -> bytes:
        """16 bytes that identify the key in every frame."""
        return self._core.id

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, PublicKey) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return PublicKey.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return f"PublicKey(id={self.id.hex()}, {self.parameters!r})"


def core_key(public_key: Any) -> _core.CkksPublicKey:
    """Return the core's object of a PublicKey. Raises ParameterError for anything else."""
    if not isinstance(public_key, PublicKey):
        raise ParameterError(
            f"expected a ckks.PublicKey, got {type(public_key).__name__}: pass authority.public_key"
        )
    return public_key._core
