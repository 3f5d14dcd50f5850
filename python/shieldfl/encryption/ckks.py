"""RLWE encryption of model updates: pack, encrypt, sum, serialise.

Two packings. ``exact`` puts fixed-point integers into polynomial coefficients; a total opens to the integer
sum, bit for bit. ``slots`` is the canonical embedding of the CKKS scheme; its totals are approximate and are
flooded with noise when they are opened. See ``docs/explanation/packings.md``.

Only :class:`shieldfl.KeyAuthority` holds a secret key.
"""

from __future__ import annotations

import shieldfl._core as _core
from shieldfl.encryption import registry
from shieldfl.encryption.parameters import RingParameters, SchemePublicKey
from shieldfl.encryption.registry import REGISTRY, Scheme, SchemeBatch, SchemeTotal
from shieldfl.errors import ParameterError

__all__ = ["Aggregator", "CiphertextBatch", "Encryptor", "Parameters", "PublicKey", "Total"]


class Parameters(RingParameters["PublicKey"]):
    """What a federation agrees on before its first round. Immutable; equal when everything is.

    Parameters
    ----------
    packing : "exact" or "slots".
    max_clients : the most updates that a total can hold, up to 2**20.
    value_bits : bits of a quantised value, sign included, 2 to 40.
    fraction_bits : bits behind the binary point, 0 to 52. A value v becomes round(v * 2**fraction_bits), ties
        to even, and must stay below 2**(value_bits - 1) in magnitude.
    ring_degree : 2048 or 4096; by default the smallest ring with room.

    Raises ParameterError when a setting is out of range or no ring of 128-bit security has room.
    """

    _SETTINGS = ("packing", "max_clients", "value_bits", "fraction_bits", "ring_degree")
    _RING_DEGREES = (2048, 4096)

    def __init__(
        self,
        *,
        packing: str = "exact",
        max_clients: int = 64,
        value_bits: int = 24,
        fraction_bits: int = 20,
        ring_degree: int | None = None,
    ) -> None:
        if packing not in ("exact", "slots"):
            raise ParameterError(f"packing must be 'exact' or 'slots', not {packing!r}")
        self._make(_core.CkksParameters, packing, max_clients, value_bits, fraction_bits, ring_degree)

    def _work(self, ciphertexts: int) -> float:
        # Of u, c0 and c1; 1/3 of a byte for a coefficient of u, 16/3 for each of e0 and e1. With two primes
        # at most, digits are quick beside that.
        return self._butterflies(3 * ciphertexts) + 11.0 * ciphertexts * self.ring_degree

    def describe(self) -> str:
        """Say in a few lines what the parameters are and what follows from them."""
        facts = self._facts
        if self.packing == "exact":
            error = (
                f"below {self._handle.error_bound:,.0f} in a sum of {self.max_clients} "
                f"(but for a chance of 2^-96 each), rounded away at scale 2^{facts['log2_scale']}"
            )
        else:
            error = f"flooded with deviation 2^{facts['log2_flooding']} at scale 2^{facts['log2_scale']}"
        return self._describe_as(
            f"CKKS, {self.packing} packing, {self.security_bits}-bit security",
            f"  left out    the lowest {facts['dropped_bits'][0]} and {facts['dropped_bits'][1]} bits of the "
            "two halves, which carry noise alone",
            f"  error       {error}",
            key=self._describe_ring(),
        )


class CiphertextBatch(SchemeBatch):
    """One client's encrypted update. Reading one checks every field and every residue."""

    _read = staticmethod(_core.CkksCiphertext.batch)


class Total(SchemeTotal):
    """The encrypted sum of a round, for the key authority.

    Reading one checks every field and every residue.
    """

    _read = staticmethod(_core.CkksCiphertext.total)


class PublicKey(SchemePublicKey):
    """Encrypts and identifies; opens nothing. Clients and aggregators get this one."""

    parameters: Parameters
    _scheme = "ckks"
    _parameters_class = Parameters
    _core_class = _core.CkksPublicKey
    _core_ciphertext = _core.CkksCiphertext
    _core_encryptor = _core.CkksEncryptor
    _core_aggregator = _core.CkksAggregator
    _batch_class = CiphertextBatch
    _total_class = Total


class Encryptor(registry.Encryptor):
    """The encryptor of this scheme: keys of another one are refused."""

    _keys = PublicKey


class Aggregator(registry.Aggregator):
    """The aggregator of this scheme: keys of another one are refused."""

    _keys = PublicKey


class Ckks(Scheme):
    """Its key pairs live for one round.

    One client that tampers with its ciphertexts learns the key from the opened sum.
    """

    encryptions = ("ckks",)
    keys_last = False

    def opened_coefficients(self, total: SchemeTotal) -> int:
        return int(total.parsed.facts["ring_degree"]) * total.parsed.ciphertexts


REGISTRY["ckks"] = Ckks(PublicKey, Encryptor, Aggregator)
