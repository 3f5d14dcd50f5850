"""Key-additive encryption: an encrypted update as small as a plain one; lies about a sum open to noise.

Each client shares a key of its own with the key authority, and hides each update with a one-time secret from
it. The aggregator asks the authority for the sum of the secrets of the clients in its sum; the authority sees
neither ciphertexts nor what they open to. See ``docs/explanation/kahe.md``.
"""

from __future__ import annotations

import math

import shieldfl._core as _core
from shieldfl.encryption import registry
from shieldfl.encryption.enrolment import ClientKey, EnrolledPublicKey
from shieldfl.encryption.enrolment import open_answered as open
from shieldfl.encryption.parameters import RingParameters, SumNeeds
from shieldfl.encryption.registry import REGISTRY, Fact, Scheme, SchemeBatch, SchemeTotal

__all__ = [
    "Aggregator",
    "CiphertextBatch",
    "ClientKey",
    "Encryptor",
    "Parameters",
    "PublicKey",
    "Total",
    "open",
]


ATTACK_COSTS = {2048: (50, 146, 115, 101), 4096: (100, 143, 111, 97), 8192: (200, 142, 108, 95)}
"""By ring degree: bits of the longest modulus that parameters have, and bits of an attack's work.

The attack is the cheaper of two on that modulus, primal and dual, and its work is rounded down. Three cost
models give it: the one behind the homomorphic encryption standard's tables, classical core-SVP (one call of a
sieve, 0.292 bits for each dimension), and core-SVP on a quantum computer (0.257 bits).
``bench/lattice_estimates.py`` computes them; docs/explanation/kahe.md says what they leave out.
"""


class Parameters(RingParameters["PublicKey"]):
    """What a session agrees on before its first round. Immutable; equal when everything is.

    Parameters
    ----------
    max_clients : the most updates that a total can hold, up to 2**20.
    value_bits : bits of a quantised value, sign included, 2 to 40.
    fraction_bits : bits behind the binary point, 0 to 52. A value v becomes round(v * 2**fraction_bits), ties
        to even, and must stay below 2**(value_bits - 1) in magnitude.
    ring_degree : 2048, 4096 or 8192; by default 4096. The largest takes the fewest bytes for many values, the
        smallest for a few.
    sum_bits : bits of a sum, sign included; by default as many as hold any sum of ``max_clients`` values.
        Fewer make ciphertexts shorter, and are for sums that are known to be small, as noise is: one of
        2**(sum_bits - 1) or more opens wrongly, and others with it. Weights cannot travel encrypted beside.

    Raises ParameterError when a setting is out of range or the ring has no room at 128-bit security.

    Example
    -------
    >>> import shieldfl as sf
    >>> parameters = sf.kahe.Parameters.plan(max_clients=64, count=1_000_000)
    >>> assert parameters.bytes_per_value < 4.1
    """

    _SETTINGS = ("max_clients", "value_bits", "fraction_bits", "ring_degree", "sum_bits")
    _RING_DEGREES = (2048, 4096, 8192)
    _CIPHERTEXTS_OF_MANY = _core.KaheParameters.ciphertexts_per_secret

    def __init__(
        self,
        *,
        max_clients: int = 64,
        value_bits: int = 24,
        fraction_bits: int = 20,
        ring_degree: int | None = None,
        sum_bits: int | None = None,
    ) -> None:
        self._make(_core.KaheParameters, max_clients, value_bits, fraction_bits, ring_degree, sum_bits)

    def _work(self, ciphertexts: int) -> float:
        # A ciphertext's product and each secret are transformed; 32/3 of a byte is drawn for a coefficient of
        # an error or a secret. One residue of each pair goes into the other's digit: with all that more
        # primes bring, that takes as long as six butterflies, with any instruction set.
        polynomials = ciphertexts + math.ceil(ciphertexts / self._CIPHERTEXTS_OF_MANY)
        digits = 6 * math.comb(len(self._facts["primes"]), 2) * ciphertexts
        return self._butterflies(polynomials) + (polynomials * 32 / 3 + digits) * self.ring_degree

    @property
    def failure_bits(self) -> float:
        """At most -log2 of the chance that a coefficient of an honest sum of max_clients opens wrongly."""
        return float(self._handle.failure_bits)

    def describe(self) -> str:
        """Say in a few lines what the parameters are, what follows, and what their security rests on."""
        facts, (_, standard, core_svp, quantum) = self._facts, ATTACK_COSTS[self.ring_degree]
        return self._describe_as(
            f"key-additive encryption, {self.security_bits}-bit security by the homomorphic encryption "
            "standard's table",
            f"  left out    the lowest {facts['dropped_bits']} bits, which carry noise alone",
            f"  error       rounded away at scale 2^{facts['log2_scale']} in a sum of {self.max_clients}, "
            f"but for a chance of 2^-{self.failure_bits:.0f} for each coefficient",
            f"  attacks     at least 2^{standard} by the standard's cost model, 2^{core_svp} by core-SVP, "
            f"2^{quantum} by that on a quantum computer",
            "  rests on    hint-RLWE with public widths (docs/explanation/kahe.md): our argument, which "
            "awaits outside review;",
            "              at least two honest clients in every sum",
            key=self._describe_ring(),
        )


class CiphertextBatch(SchemeBatch):
    """One client's encrypted update. Reading one checks every field and every residue."""

    _read = staticmethod(_core.KaheCiphertext.batch)


class Total(SchemeTotal):
    """The encrypted sum of a round and the list of the clients in it.

    Reading one checks every field and every residue.
    """

    _read = staticmethod(_core.KaheCiphertext.total)
    _core_request = _core.KaheSumRequest


class PublicKey(EnrolledPublicKey):
    """The public facts of a session: parameters, digest of its manifest, authority and epoch; no key."""

    parameters: Parameters
    _scheme = "kahe"
    _parameters_class = Parameters
    _core_class = _core.KahePublicKey
    _core_ciphertext = _core.KaheCiphertext
    _core_encryptor = _core.KaheEncryptor
    _core_aggregator = _core.KaheAggregator
    _batch_class = CiphertextBatch
    _total_class = Total


class Encryptor(registry.Encryptor):
    """The encryptor of this scheme: keys of another one are refused."""

    _keys = PublicKey


class Aggregator(registry.Aggregator):
    """The aggregator of this scheme: keys of another one are refused."""

    _keys = PublicKey


class Kahe(Scheme):
    """Each client enrols once, and shares a key with the key authority.

    A total's key opens that total alone.
    """

    encryptions = ("kahe",)

    def _planned_count(self, needs: SumNeeds) -> int | None:
        """Return the most there can be where the count is unknown: rings differ by more than four to one."""
        return needs.most_count if needs.count is None else needs.count

    def sum_key_facts(self, unit: int, count: int) -> dict[str, Fact]:
        return {"ring degree": unit, "secret polynomials": count // unit}


REGISTRY["kahe"] = Kahe(PublicKey, Encryptor, Aggregator)
