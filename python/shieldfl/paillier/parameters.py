"""What a federation agrees on before its first round."""

from __future__ import annotations

import logging
from typing import Any

import shieldfl._core as _core
from shieldfl.array_view import as_unsigned
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask
from shieldfl.scheme.fitted_scale import FittedScale, fit_scale
from shieldfl.scheme.keys import SchemePublicKey
from shieldfl.scheme.parameters import SchemeParameters

__all__ = ["Parameters", "PublicKey"]

_LOGGER = logging.getLogger("shieldfl")
_PACKINGS = ("dense", "single")
_RANDOMIZERS = ("short-exponent", "classical")
_DEFAULT_SECURITY_BITS = 128
# The widths of the core's fields: what is above one is above every limit, and refused as the largest number is.
_WIDTHS = {"key_bits": 16, "max_clients": 32, "value_bits": 8, "fraction_bits": 8, "max_weight": 32}


class Parameters(SchemeParameters[_core.PaillierParameters, "PublicKey"]):
    """What a federation agrees on before its first round. Immutable; equal when everything is.

    Parameters
    ----------
    key_bits : length of the modulus n: 2048, 3072 or 4096. 2048 bits give 112 bits of security, and are logged.
    packing : "dense" for as many values in a ciphertext as the plaintext holds, "single" for one, as in SenseCrypt.
    max_clients : the most updates that a total can hold, up to 2**20.
    value_bits : bits of a quantised value, sign included, 2 to 40.
    fraction_bits : bits behind the binary point, 0 to 52. A value v becomes round(v * 2**fraction_bits), ties
        to even, and must stay below 2**(value_bits - 1) in magnitude.
    max_weight : the largest integer weight that an aggregator may give a batch, up to 2**20. Keep it small: weights
        that differ much let one sum tell single updates apart (docs/threat-model.md).
    randomizer : "short-exponent" hides a plaintext with a power of one base, which a table makes quick (Damgard,
        Jurik and Nielsen 2010); "classical" with r**n (Paillier 1999).

    Raises ParameterError when a setting is out of range.
    """

    __slots__ = ()

    def __init__(
        self,
        *,
        key_bits: int = 3072,
        packing: str = "dense",
        max_clients: int = 64,
        value_bits: int = 24,
        fraction_bits: int = 20,
        max_weight: int = 1,
        randomizer: str = "short-exponent",
    ) -> None:
        self._adopt(
            _core.PaillierParameters(
                **_read_settings(
                    key_bits, packing, max_clients, value_bits, fraction_bits, max_weight, randomizer
                )
            )
        )
        if self.security_bits < _DEFAULT_SECURITY_BITS:
            _LOGGER.warning(
                "Paillier with a key of %d bits has %d-bit security: use 3072 bits or more for 128",
                self.key_bits,
                self.security_bits,
            )

    @classmethod
    def fit(
        cls,
        sample_update: Any,
        *,
        mask: Mask | None = None,
        weights: tuple[float, float] | None = None,
        relative_error: float = 1e-3,
        headroom: float = 4.0,
        key_bits: int = 3072,
        packing: str = "dense",
        max_clients: int = 64,
        max_weight: int = 1,
        randomizer: str = "short-exponent",
    ) -> Parameters:
        """Choose value_bits and fraction_bits for updates like a sample, by the error that rounding may have.

        Everything is as for ``ckks.Parameters.fit``: run it on public or planned data, once. ``weights`` are those that
        ``Encryptor.encrypt`` gets; integer ones, which the aggregator gives, multiply what has been rounded, and need
        none of it. The other settings are those of ``Parameters``.
        """
        scale = fit_scale(
            sample_update,
            guard_bits=int(
                _core.PaillierParameters(
                    **_read_settings(key_bits, packing, max_clients, 2, 0, max_weight, randomizer)
                ).facts["guard_bits"]
            ),
            mask=mask,
            weights=weights,
            relative_error=relative_error,
            headroom=headroom,
        )
        chosen = cls(
            key_bits=key_bits,
            packing=packing,
            max_clients=max_clients,
            value_bits=scale.value_bits,
            fraction_bits=scale.fraction_bits,
            max_weight=max_weight,
            randomizer=randomizer,
        )
        chosen._adopt(chosen._handle, scale)
        return chosen

    @property
    def key_bits(self) -> int:
        """Bits of the modulus n; a ciphertext has twice as many."""
        return int(self._facts["key_bits"])

    @property
    def packing(self) -> str:
        """``"dense"`` or ``"single"``."""
        return str(self._facts["packing"])

    @property
    def max_weight(self) -> int:
        """The largest integer weight of a batch."""
        return int(self._facts["max_weight"])

    @property
    def randomizer(self) -> str:
        """``"short-exponent"`` or ``"classical"``."""
        return str(self._facts["randomizer"])

    @property
    def security_bits(self) -> int:
        """Bits of security, by the comparable strengths of NIST SP 800-57 part 1, table 2."""
        return self._handle.security_bits

    def describe(self) -> str:
        """Say in a few lines what the parameters are and what follows from them."""
        facts = self._facts
        weights = f", weights up to {self.max_weight:,}" if self.max_weight > 1 else ""
        if self.randomizer == "short-exponent":
            randomizer = f"powers of one base, secret exponents of {facts['exponent_bits']:,} bits"
        else:
            randomizer = "r^n with r random below n"
        values = "1 value" if self.values_per_ciphertext == 1 else f"{self.values_per_ciphertext:,} values"
        return "\n".join(
            (
                f"Paillier, {self.packing} packing, {self.security_bits}-bit security",
                self._describe_values(),
                self._describe_clients(weights),
                f"  key         n of {self.key_bits:,} bits",
                f"  ciphertext  {values} in {facts['ciphertext_bytes']:,} bytes: "
                f"{self.bytes_per_value:.2f} bytes a value",
                f"  randomiser  {randomizer}",
                "  error       none: sums of quantised values are exact",
            )
        )

    def __reduce__(self) -> tuple[Any, tuple[dict[str, Any], FittedScale | None]]:
        facts = {name: self._facts[name] for name in (*_SETTINGS, "spare_bits")}
        return _make_parameters, (facts, self._fitted)

    def __repr__(self) -> str:
        return f"Parameters({', '.join(f'{name}={self._facts[name]!r}' for name in _SETTINGS)})"


_SETTINGS = (
    "key_bits",
    "packing",
    "max_clients",
    "value_bits",
    "fraction_bits",
    "max_weight",
    "randomizer",
)


def _read_settings(
    key_bits: int,
    packing: str,
    max_clients: int,
    value_bits: int,
    fraction_bits: int,
    max_weight: int,
    randomizer: str,
) -> dict[str, Any]:
    """Return settings as the core takes them. Raises ParameterError for what is of another kind."""
    if packing not in _PACKINGS:
        raise ParameterError(f"packing must be 'dense' or 'single', not {packing!r}")
    if randomizer not in _RANDOMIZERS:
        raise ParameterError(f"randomizer must be 'short-exponent' or 'classical', not {randomizer!r}")
    settings = {
        "key_bits": key_bits,
        "max_clients": max_clients,
        "value_bits": value_bits,
        "fraction_bits": fraction_bits,
        "max_weight": max_weight,
    }
    numbers = {
        name: min(as_unsigned(value, name), 2 ** _WIDTHS[name] - 1) for name, value in settings.items()
    }
    return {"packing": packing, "randomizer": randomizer, **numbers}


def _make_parameters(settings: dict[str, Any], fitted: FittedScale | None) -> Parameters:
    """Make what was pickled: whoever chose the key size has been told what it means."""
    parameters = Parameters._wrap(_core.PaillierParameters(**settings))
    parameters._adopt(parameters._handle, fitted)
    return parameters


class PublicKey(SchemePublicKey[_core.PaillierPublicKey]):
    """Encrypts and identifies; opens nothing. Clients and aggregators get this one."""

    __slots__ = ()
    parameters: Parameters
    _scheme = "paillier"
    _read = staticmethod(_core.PaillierPublicKey.from_bytes)
    _parameters_of = staticmethod(Parameters._wrap)
