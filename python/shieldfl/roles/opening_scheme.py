"""What the key authority needs to know of each encryption scheme, found by parameters or by a key's frame."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from shieldfl import _core, ckks, paillier
from shieldfl.errors import ParameterError, WireFormatError

__all__ = ["OpeningScheme", "scheme_of_key_frame", "scheme_of_parameters"]


@dataclass(frozen=True)
class OpeningScheme:
    """What the authority needs to know of an encryption scheme."""

    name: str
    face: ModuleType
    public_key: Any
    decryptor: Any
    coefficients_of: Callable[[Any], int]
    """What a total counts for in the budget of the key."""


def _ckks_coefficients(total: ckks.Total) -> int:
    parsed = total.parsed
    return int(parsed.facts["ring_degree"]) * parsed.ciphertexts


def _paillier_values(total: paillier.Total) -> int:
    return total.count + total.weighted


_SCHEMES = (
    OpeningScheme("ckks", ckks, _core.CkksPublicKey, _core.CkksDecryptor, _ckks_coefficients),
    OpeningScheme("paillier", paillier, _core.PaillierPublicKey, _core.PaillierDecryptor, _paillier_values),
)


def scheme_of_parameters(params: Any) -> OpeningScheme:
    """Return the scheme of these parameters. Raises ParameterError for what is none."""
    for scheme in _SCHEMES:
        if isinstance(params, scheme.face.Parameters):
            return scheme
    names = " or ".join(f"{scheme.name}.Parameters" for scheme in _SCHEMES)
    raise ParameterError(f"params must be {names}, not {type(params).__name__}")


def scheme_of_key_frame(public_key: bytes) -> OpeningScheme:
    """Return the scheme of a public key's frame. Raises WireFormatError."""
    kind = _core.summarise_frame(public_key).kind_name
    for scheme in _SCHEMES:
        if kind == f"{scheme.name} public key":
            return scheme
    raise WireFormatError("the key file holds the key of no scheme that this version has: update shieldfl")
