"""One-time pads: the simplest additively homomorphic cipher; trust, enrolment and answers are ``kahe``'s.

Each client adds a key stream that it shares with the key authority. The sum of the streams of the clients in
a total opens that total, and nothing else. There is no lattice assumption; the price is an authority whose
work grows with clients and values, and an answer as long as the total. See ``docs/explanation/pads.md``.
"""

from __future__ import annotations

import shieldfl._core as _core
from shieldfl.encryption import registry
from shieldfl.encryption.enrolment import ClientKey, EnrolledPublicKey
from shieldfl.encryption.enrolment import open_answered as open
from shieldfl.encryption.parameters import SchemeParameters, SumNeeds
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


class Parameters(SchemeParameters["PublicKey"]):
    """What a session agrees on before its first round.

    Immutable; equal when everything is, but for what was planned.

    Parameters
    ----------
    max_clients : the most updates that a total can hold, up to 2**20.
    value_bits : bits of a quantised value, sign included, 2 to 40.
    fraction_bits : bits behind the binary point, 0 to 52. A value v becomes round(v * 2**fraction_bits), ties
        to even, and must stay below 2**(value_bits - 1) in magnitude.
    sum_bits : bits of a sum, sign included; by default as many as hold any sum of ``max_clients`` values.
        Fewer make ciphertexts shorter, and are for sums that are known to be small, as noise is: one of
        2**(sum_bits - 1) or more opens wrongly. Weights cannot travel encrypted beside.

    Raises ParameterError when a setting is out of range.
    """

    _SETTINGS = ("max_clients", "value_bits", "fraction_bits", "sum_bits")

    def __init__(
        self,
        *,
        max_clients: int = 64,
        value_bits: int = 24,
        fraction_bits: int = 20,
        sum_bits: int | None = None,
    ) -> None:
        self._make(_core.PadsParameters, max_clients, value_bits, fraction_bits, sum_bits)

    @property
    def pad_bytes(self) -> int:
        """Bytes of key stream for each value: of each client, and at each authority once more."""
        return int(self._facts["pad_bits"]) // 8

    def describe(self) -> str:
        """Say in a few lines what the parameters are, and what a round costs the authority."""
        return self._describe_as(
            f"one-time pads, {self.security_bits}-bit keys of ChaCha20",
            f"  authority   {self.pad_bytes} bytes of key stream for each client and value, and an answer as "
            "long as the total;",
            "              for many values kahe is cheaper there: docs/explanation/pads.md says from how "
            "many on",
            "  rests on    ChaCha20 as a pseudorandom function, and keyed BLAKE2b as one; at least two "
            "honest clients in every sum",
        )


class CiphertextBatch(SchemeBatch):
    """One client's encrypted update. Reading one checks every field and every residue."""

    _read = staticmethod(_core.PadsCiphertext.batch)


class Total(SchemeTotal):
    """The encrypted sum of a round and the list of the clients in it.

    Reading one checks every field and every residue.
    """

    _read = staticmethod(_core.PadsCiphertext.total)
    _core_request = _core.PadsSumRequest


class PublicKey(EnrolledPublicKey):
    """The public facts of a session: parameters, digest of its manifest, authority and epoch; no key."""

    parameters: Parameters
    _scheme = "pads"
    _parameters_class = Parameters
    _core_class = _core.PadsPublicKey
    _core_ciphertext = _core.PadsCiphertext
    _core_encryptor = _core.PadsEncryptor
    _core_aggregator = _core.PadsAggregator
    _batch_class = CiphertextBatch
    _total_class = Total


class Encryptor(registry.Encryptor):
    """The encryptor of this scheme: keys of another one are refused."""

    _keys = PublicKey


class Aggregator(registry.Aggregator):
    """The aggregator of this scheme: keys of another one are refused."""

    _keys = PublicKey


class Pads(Scheme):
    """Each client adds a pad that it shares with the key authority.

    The sum of a total's pads opens that total alone.
    """

    encryptions = ("pads",)
    long_answers = True

    def _planned_count(self, needs: SumNeeds) -> None:
        """Return None: there is no ring to choose."""

    def sum_key_facts(self, unit: int, count: int) -> dict[str, Fact]:
        return {"bits of a word": unit, "words": count}


REGISTRY["pads"] = Pads(PublicKey, Encryptor, Aggregator)
