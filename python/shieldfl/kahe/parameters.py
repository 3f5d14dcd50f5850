"""What a session agrees on before its first round."""

from __future__ import annotations

from typing import Any

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_frame, as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.scheme.keys import SchemePublicKey
from shieldfl.scheme.parameters import SchemeParameters

__all__ = ["Parameters", "PublicKey"]

_MOST = 2**32 - 1


class Parameters(SchemeParameters[_core.KaheParameters, "PublicKey"]):
    """What a session agrees on before its first round. Immutable; equal when everything is.

    Parameters
    ----------
    max_clients : the most updates that a total can hold, up to 2**20.
    value_bits : bits of a quantised value, sign included, 2 to 40.
    fraction_bits : bits behind the binary point, 0 to 52. A value v becomes round(v * 2**fraction_bits), ties
        to even, and must stay below 2**(value_bits - 1) in magnitude.
    ring_degree : 2048, 4096 or 8192; by default 4096. The largest takes the fewest bytes for many values, the smallest
        for a few.

    Raises ParameterError when a setting is out of range or the ring has no room at 128-bit security.
    """

    __slots__ = ()

    def __init__(
        self,
        *,
        max_clients: int = 64,
        value_bits: int = 24,
        fraction_bits: int = 20,
        ring_degree: int | None = None,
    ) -> None:
        clients, bits, fraction = (
            min(as_unsigned(value, name), _MOST)
            for name, value in (
                ("max_clients", max_clients),
                ("value_bits", value_bits),
                ("fraction_bits", fraction_bits),
            )
        )
        degree = None if ring_degree is None else min(as_unsigned(ring_degree, "ring_degree"), _MOST)
        self._adopt(_core.KaheParameters(clients, bits, fraction, degree))

    @property
    def packing(self) -> str:
        """Values are fixed-point integers in coefficients; sums are exact."""
        return "exact"

    @property
    def ring_degree(self) -> int:
        """N of the ring Z_q[X] / (X^N + 1)."""
        return int(self._facts["ring_degree"])

    @property
    def values_per_coefficient(self) -> int:
        """How many values share a coefficient."""
        return int(self._facts["values_per_coefficient"])

    @property
    def security_bits(self) -> int:
        """Bits of security, by the homomorphic encryption standard's table; docs/kahe.md has other estimates."""
        return self._handle.security_bits

    @property
    def failure_bits(self) -> float:
        """-log2 of the probability, at least, that a coefficient of an honest sum of max_clients opens wrongly."""
        return self._handle.failure_bits

    def describe(self) -> str:
        """Say in a few lines what the parameters are and what follows from them."""
        facts = self._facts
        modulus_bits = " + ".join(str(prime.bit_length()) for prime in facts["primes"])
        return "\n".join(
            (
                f"key-additive encryption, {self.security_bits}-bit security by the standard's table (docs/kahe.md: "
                "what it rests on, and other estimates)",
                self._describe_values(),
                f"  clients     up to {self.max_clients:,}, {facts['guard_bits']} guard bits for their sum",
                f"  ring        N = {self.ring_degree}, modulus of {modulus_bits} bits",
                f"  ciphertext  {self.values_per_ciphertext:,} values in {facts['ciphertext_bytes']:,} bytes: "
                f"{self.bytes_per_value:.2f} bytes a value",
                f"  left out    the lowest {facts['dropped_bits']} bits, which carry noise alone",
                f"  error       rounded away at scale 2^{facts['log2_scale']} in a sum of {self.max_clients}, but for "
                f"a chance of 2^-{self.failure_bits:.0f} each",
            )
        )

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return _make_parameters, ({name: self._facts[name] for name in _SETTINGS},)

    def __repr__(self) -> str:
        return f"Parameters({', '.join(f'{name}={self._facts[name]}' for name in _SETTINGS)})"


_SETTINGS = ("max_clients", "value_bits", "fraction_bits", "ring_degree")


def _make_parameters(settings: dict[str, int]) -> Parameters:
    return Parameters(**settings)


class PublicKey(SchemePublicKey[_core.KahePublicKey]):
    """What is public of a session: parameters, the digest of its manifest, authority and epoch. There is no key in it.

    The uniform polynomials of the ring are drawn from it, and so are never anybody's choice.
    """

    __slots__ = ()
    parameters: Parameters
    _scheme = "kahe"
    _read = staticmethod(_core.KahePublicKey.from_bytes)
    _parameters_of = staticmethod(Parameters._wrap)

    @classmethod
    def of_session(
        cls, parameters: Parameters, manifest_digest: Buffer, authority: Buffer, epoch: int = 0
    ) -> PublicKey:
        """Make that of a session from its manifest.

        Parameters
        ----------
        parameters : of the session.
        manifest_digest : 32 bytes of the manifest that the authority signed.
        authority : 16 bytes that identify the authority.
        epoch : the authority's, below 2**32; it goes up where its memory was restored.

        Raises ParameterError.
        """
        if not isinstance(parameters, Parameters):
            raise ParameterError(f"parameters must be kahe.Parameters, not {type(parameters).__name__}")
        if as_unsigned(epoch, "epoch") > _MOST:
            raise ParameterError("epoch must be below 2**32")
        return cls(
            _core.KahePublicKey(parameters._handle, as_frame(manifest_digest), as_frame(authority), epoch)
        )
