"""Paillier: its parameters, its frames, and what the registry knows of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import Buffer
from shieldfl.encryption.encryption import SchemeBatch, SchemeTotal, Vector
from shieldfl.encryption.interface import FrameBody, KeyBits, Scheme
from shieldfl.encryption.keys import SchemePublicKey
from shieldfl.encryption.paillier.encryption import Aggregator, Encryptor, UnionOrder
from shieldfl.encryption.parameters import FittedScale, SchemeParameters, SumNeeds, core_number
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask

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
    _SETTINGS = (
        "key_bits",
        "packing",
        "max_clients",
        "value_bits",
        "fraction_bits",
        "max_weight",
        "randomizer",
    )

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

    @property
    def key_bits(self) -> int:
        """Bits of the modulus n; a ciphertext has twice as many."""
        return int(self._facts["key_bits"])

    @property
    def max_weight(self) -> int:
        """The largest integer weight of a batch."""
        return int(self._facts["max_weight"])

    @property
    def randomizer(self) -> str:
        """``"short-exponent"`` or ``"classical"``."""
        return str(self._facts["randomizer"])

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

    @classmethod
    def _guard_bits(cls, settings: dict[str, Any]) -> int:
        # Not by what is made for users, which logs a small key each time.
        defaults: dict[str, Any] = cls.__init__.__kwdefaults__ or {}
        return int(_core.PaillierParameters(**_read_settings(**defaults | settings)).facts["guard_bits"])

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        settings = {name: self._facts[name] for name in (*self._SETTINGS, "spare_bits")}
        return _remade, (settings, self._fitted, self._goal, self._count)


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
    numbers = {name: core_number(value, name, _WIDTHS[name]) for name, value in settings.items()}
    return {"packing": packing, "randomizer": randomizer, **numbers}


def _remade(
    settings: dict[str, Any], fitted: FittedScale | None, goal: str | None, count: int | None
) -> Parameters:
    """Make what was pickled: whoever chose the key size has been told what it means."""
    parameters = Parameters._wrap(_core.PaillierParameters(**settings))
    parameters._adopt(parameters._handle, fitted, goal, count)
    return parameters


class CiphertextBatch(SchemeBatch):
    """One client's encrypted update.

    Reading one checks every field, on one thread. Residues cannot be checked without n, which does not travel with
    them: the aggregator does, before it adds any.
    """

    __slots__ = ()

    @staticmethod
    def _read(frame: bytes, threads: int) -> _core.PaillierCiphertext:
        return _core.PaillierCiphertext.batch(frame)


class Total(SchemeTotal):
    """The encrypted sum of a round, for the key authority, which checks its residues before it opens it."""

    __slots__ = ()

    @staticmethod
    def _read(frame: bytes, threads: int) -> _core.PaillierCiphertext:
        return _core.PaillierCiphertext.total(frame)

    @property
    def total_weight(self) -> int:
        """The sum of the integer weights of its batches: ``clients`` where all of them are 1."""
        return self.parsed.total_weight


class PublicKey(SchemePublicKey):
    """Encrypts and identifies; opens nothing. Clients and aggregators get this one."""

    __slots__ = ()
    parameters: Parameters
    _scheme = "paillier"
    _parameters_class = Parameters
    _core_class = _core.PaillierPublicKey
    _core_ciphertext = _core.PaillierCiphertext
    _core_encryptor = _core.PaillierEncryptor
    _core_aggregator = _core.PaillierAggregator
    _has_own_classes = True
    _batch_class = CiphertextBatch
    _total_class = Total


class Paillier(Scheme):
    """Its pairs take seconds to make, and no honest or forged ciphertext tells anything of them: they serve all rounds.

    Clients with different masks share ciphertexts in a :class:`UnionOrder`.
    """

    Encryptor = Encryptor
    Aggregator = Aggregator
    opening = "shieldfl.encryption.paillier.opening"
    encryptions = ("paillier-dense", "paillier-single")
    key_sizes = get_args(KeyBits)
    keys_last = True
    adds_clear_values = True
    integer_weights = True
    has_pool = True
    is_slow = True
    positions_part = "order"

    @property
    def frame_readers(self) -> Mapping[str, Callable[[bytes], FrameBody]]:
        """Of public keys, batches, totals and orders of a union."""
        return {
            **super().frame_readers,
            "union order": _order_body,
            "paillier batch": self._batch_body,
            "paillier total": self._total_body,
        }

    def _batch_body(self, frame: bytes) -> FrameBody:
        batch: Any = _core.PaillierCiphertext.batch(frame)
        return self._ciphertext_body(batch, ciphertexts_present=batch.present_ciphertexts)

    def _total_body(self, frame: bytes) -> FrameBody:
        total: Any = _core.PaillierCiphertext.total(frame)
        return self._ciphertext_body(total, total_weight=total.total_weight)

    def _stated_parameters(self, ciphertext: Any) -> tuple[dict[str, Any], str]:
        parameters = Parameters._wrap(ciphertext.parameters)
        return parameters._facts, parameters.describe()

    def calibrated_parameters(self, encryption: str, key_bits: int) -> Any:
        """Return the default ones of this packing and key size."""
        return self.Parameters(key_bits=key_bits, packing=_packing(encryption))

    def update_parameters(self, encryption: str, needs: SumNeeds) -> Any:
        """Return those whose fields have room for integer weights.

        Nobody can see whether a client encrypts where it also sends a plain number, so where those come,
        fields have room for both.
        """
        self.check_key_bits(needs.key_bits)
        return self.Parameters(
            key_bits=needs.key_bits,
            packing=_packing(encryption),
            max_clients=2 * needs.clients if needs.takes_clear_values else needs.clients,
            value_bits=needs.value_bits,
            fraction_bits=needs.fraction_bits,
            max_weight=needs.most_weight,
        )

    def positions_of(self, masks: list[Mask], threads: int | None) -> UnionOrder:
        """Return the order of the masks' union."""
        return UnionOrder.from_masks(masks, threads)

    def read_positions(self, frame: Buffer, size: int) -> UnionOrder:
        """Read an order."""
        return UnionOrder.from_bytes(frame, size)

    def encrypt(
        self,
        encryptor: Any,
        update: Vector,
        own: Mask,
        positions: Any,
        weight: float | None,
        round_number: int,
    ) -> tuple[bytes, Mask]:
        """Encrypt the client's own positions, in the union's order; the aggregator gives the weight."""
        return encryptor.encrypt_in_union(update, positions, own, round_number).to_bytes(), own

    def encryptor(self, key: Any, threads: int | None, purpose: str) -> Any:
        """Return what encrypts under the key, which is for this purpose alone."""
        return self.Encryptor(key, threads)

    def aggregator(
        self,
        key: Any,
        threads: int | None,
        round_number: int,
        positions: Any,
        *,
        weighted: bool,
        purpose: str,
    ) -> Any:
        """Return an aggregator of batches in this order."""
        return self.Aggregator(key, threads, round=round_number, order=positions)

    def add(
        self, aggregator: Any, client: int, frame: Buffer, weight: int, clear: NDArray[np.float32] | None
    ) -> None:
        """Add a frame so many times, with what its client sent in the clear."""
        aggregator.add(frame, weight, clear if clear is not None and clear.any() else None)


def _packing(encryption: str) -> str:
    return encryption.removeprefix("paillier-")


def _order_body(frame: bytes) -> FrameBody:
    order = UnionOrder.from_bytes(frame)
    return FrameBody({"positions": order.size, "in union": order.count, "positions id": order.id.hex()})


SCHEME = Paillier(PublicKey)
