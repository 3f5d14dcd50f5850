"""One-time pads: the simplest additively homomorphic cipher, under the same trust, enrolment and answers as ``kahe``.

Each client adds a key stream that it shares with the key authority; the sum of the streams of those who are in a total
opens it, and nothing else. No lattice assumption; the price is an authority whose work grows with clients and values,
and an answer as long as the total. See ``docs/pads.md``.
"""

from __future__ import annotations

import math

import shieldfl._core as _core
from shieldfl.array_view import as_unsigned
from shieldfl.encryption import encryption
from shieldfl.encryption.answers import open_answered as open
from shieldfl.encryption.encryption import SchemeBatch, SchemeTotal
from shieldfl.encryption.keys import ClientKey, EnrolledPublicKey
from shieldfl.encryption.parameters import SchemeParameters, SumNeeds, core_number
from shieldfl.encryption.registry import REGISTRY, Fact, Scheme

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

# kFrameHeaderBytes and kFrameTrailerBytes of cpp/common/wire.h, SumKeyHead::kBytes of cpp/enrolled/sum_key_head.h.
_ANSWER_HEAD_BYTES = 48 + 4 + 80
# The default ring of kahe, kMaxSample of cpp/kahe/frame_secret.h.
_RING_DEGREE = 4096
_LARGEST_COEFFICIENT = 42


class Parameters(SchemeParameters[_core.PadsParameters, "PublicKey"]):
    """What a session agrees on before its first round. Immutable; equal when everything is, but for what was planned.

    Parameters
    ----------
    max_clients : the most updates that a total can hold, up to 2**20.
    value_bits : bits of a quantised value, sign included, 2 to 40.
    fraction_bits : bits behind the binary point, 0 to 52. A value v becomes round(v * 2**fraction_bits), ties
        to even, and must stay below 2**(value_bits - 1) in magnitude.
    sum_bits : bits of a sum, sign included; by default as many as hold any sum of ``max_clients`` values. Fewer
        make ciphertexts shorter, and are for sums that are known to be small, as noise is: one of 2**(sum_bits - 1) or
        more opens wrongly. Weights cannot travel encrypted beside.

    Raises ParameterError when a setting is out of range.
    """

    __slots__ = ()
    _SETTINGS = ("max_clients", "value_bits", "fraction_bits", "sum_bits")

    def __init__(
        self,
        *,
        max_clients: int = 64,
        value_bits: int = 24,
        fraction_bits: int = 20,
        sum_bits: int | None = None,
    ) -> None:
        self._adopt(
            _core.PadsParameters(
                core_number(max_clients, "max_clients"),
                core_number(value_bits, "value_bits"),
                core_number(fraction_bits, "fraction_bits"),
                None if sum_bits is None else core_number(sum_bits, "sum_bits"),
            )
        )

    @property
    def pad_bytes(self) -> int:
        """Bytes of key stream for each value: of each client, and at each authority once more."""
        return int(self._facts["pad_bits"]) // 8

    def answer_bytes(self, count: int) -> int:
        """Return how long what an authority answers to a total of ``count`` values is, in bytes: about as the total.

        Sealing and signing it adds 92 bytes. A weight that is encrypted beside values counts as one.
        """
        return _ANSWER_HEAD_BYTES + self._blocks(count) * int(self._facts["total_ciphertext_bytes"])

    def key_stream_bytes(self, clients: int, count: int) -> int:
        """Return how much key stream an authority draws for a total of so many clients and values."""
        return as_unsigned(clients, "clients") * self._blocks(count) * self._block_stream_bytes

    @property
    def kahe_is_shorter_from(self) -> int:
        """The fewest values for which an authority of ``kahe``, default ring, has the shorter answer to all clients."""
        answer = _RING_DEGREE * (2 * _LARGEST_COEFFICIENT * self.max_clients).bit_length() // 8
        return answer // int(self._facts["total_ciphertext_bytes"]) * self.values_per_ciphertext + 1

    @property
    def kahe_is_quicker_from(self) -> int:
        """The fewest values for which an authority of ``kahe``, default ring, takes less time, whatever the clients.

        It draws so much key stream for a client's secret, on average. It takes as long for a byte of that, sampling
        included, as for one that pads are: bench/pads_beside_kahe.py measures that, docs/pads.md has what it printed.
        """
        drawn = 32 * _RING_DEGREE / 3
        return math.floor(drawn / self._block_stream_bytes) * self.values_per_ciphertext + 1

    def describe(self) -> str:
        """Say in a few lines what the parameters are, what a round costs authority and network, and under ``kahe``."""
        facts = self._facts
        count = 1_000_000 if self._count is None else self._count  # which stands for many
        stream = self.key_stream_bytes(self.max_clients, count)
        return "\n".join(
            (
                f"one-time pads, {self.security_bits}-bit keys of ChaCha20",
                self._describe_values(),
                self._describe_clients(),
                f"  ciphertext  {self.values_per_ciphertext:,} values in {facts['ciphertext_bytes']:,} bytes: "
                f"{self.bytes_per_value:.2f} bytes a value",
                f"  authority   for {self.max_clients:,} clients with {count:,} values each: {stream:,} bytes of key "
                f"stream, and an answer of {self.answer_bytes(count):,} bytes",
                f"  kahe has    the shorter answer from {self.kahe_is_shorter_from:,} values on, the quicker "
                f"authority from about {_about(self.kahe_is_quicker_from):,} on",
                "  rests on    ChaCha20 as a pseudorandom function, and keyed BLAKE2b as one; at least two honest "
                "clients in every sum",
                *self._describe_narrow_sums(),
            )
        )

    @property
    def _block_stream_bytes(self) -> int:
        return int(self._handle.words_per_ciphertext) * self.pad_bytes

    def _blocks(self, count: int) -> int:
        return math.ceil(as_unsigned(count, "count") / self.values_per_ciphertext)


def _about(count: int) -> int:
    step = int(10 ** max(math.floor(math.log10(count)) - 1, 0))
    return round(count / step) * step


class CiphertextBatch(SchemeBatch):
    """One client's encrypted update. Reading one checks every field and every residue."""

    __slots__ = ()
    _read = staticmethod(_core.PadsCiphertext.batch)


class Total(SchemeTotal):
    """The encrypted sum of a round and the list of those in it. Reading one checks every field and every residue."""

    __slots__ = ()
    _read = staticmethod(_core.PadsCiphertext.total)
    _core_request = _core.PadsSumRequest


class PublicKey(EnrolledPublicKey):
    """What is public of a session: parameters, the digest of its manifest, authority and epoch; no key is in it."""

    __slots__ = ()
    parameters: Parameters
    _scheme = "pads"
    _parameters_class = Parameters
    _core_class = _core.PadsPublicKey
    _core_ciphertext = _core.PadsCiphertext
    _core_encryptor = _core.PadsEncryptor
    _core_aggregator = _core.PadsAggregator
    _core_request = _core.PadsSumRequest
    _batch_class = CiphertextBatch
    _total_class = Total


class Encryptor(encryption.Encryptor):
    """The encryptor of this scheme: keys of another one are refused."""

    _keys = PublicKey


class Aggregator(encryption.Aggregator):
    """The aggregator of this scheme: keys of another one are refused."""

    _keys = PublicKey


class Pads(Scheme):
    """Each client adds a pad that it shares with the key authority; the sum of these opens a total, and that alone."""

    encryptions = ("pads",)
    keys_last = True
    long_answers = True

    def _planned_count(self, needs: SumNeeds) -> None:
        """Return None: there is no ring to choose."""

    def sum_key_facts(self, unit: int, count: int) -> dict[str, Fact]:
        return {"bits of a word": unit, "words": count}


REGISTRY["pads"] = Pads(PublicKey, Encryptor, Aggregator)
