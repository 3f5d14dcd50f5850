"""The public half of a key pair. The secret half never leaves the key authority."""

from __future__ import annotations

from shieldfl import _core
from shieldfl.paillier.parameters import Parameters
from shieldfl.scheme.keys import SchemePublicKey

__all__ = ["PublicKey"]


class PublicKey(SchemePublicKey[_core.PaillierPublicKey]):
    """Encrypts and identifies; opens nothing. Clients and aggregators get this one."""

    __slots__ = ("parameters",)
    parameters: Parameters
    _scheme = "paillier"
    _read = staticmethod(_core.PaillierPublicKey.from_bytes)

    def __init__(self, core: _core.PaillierPublicKey) -> None:
        super().__init__(core)
        self.parameters = Parameters._wrap(core.parameters)

    def __repr__(self) -> str:
        return f"PublicKey(id={self.id.hex()}, {self.parameters!r})"
