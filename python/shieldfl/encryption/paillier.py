"""Paillier encryption of model updates, with one value in a plaintext or as many as it holds.

The verbs are those of :mod:`shieldfl.encryption.ckks`, and sums are exact. On top of them, batches can be
multiplied by integer weights, an :class:`Encryptor` can precompute randomisers, and clients with different
masks can share packed ciphertexts through a :class:`UnionOrder`. See ``docs/explanation/paillier.md``.

Only :class:`shieldfl.KeyAuthority` holds a secret key.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import (
    Buffer,
    Update,
    Vector,
    as_frame,
    as_threads,
    as_unsigned,
    as_update,
    as_vector,
)
from shieldfl.encryption import registry
from shieldfl.encryption.parameters import (
    Identified,
    SchemeParameters,
    SchemePublicKey,
    SumNeeds,
    checked_key,
    core_number,
)
from shieldfl.encryption.registry import (
    REGISTRY,
    FrameSource,
    KeyBits,
    Scheme,
    SchemeBatch,
    SchemeTotal,
)
from shieldfl.errors import ParameterError, RangeError
from shieldfl.masks import Mask, bits_of

__all__ = ["Aggregator", "CiphertextBatch", "Encryptor", "Parameters", "PublicKey", "Total", "UnionOrder"]

_LOGGER = logging.getLogger("shieldfl")
_CHOICES = {"packing": ("dense", "single"), "randomizer": ("short-exponent", "classical")}
# The widths of the core's fields: a number above one is above every limit, and refused as the largest is.
_WIDTHS = {"key_bits": 16, "max_clients": 32, "value_bits": 8, "fraction_bits": 8, "max_weight": 32}


class Parameters(SchemeParameters["PublicKey"]):
    """What a federation agrees on before its first round. Immutable; equal when everything is.

    Parameters
    ----------
    key_bits : length of the modulus n: 2048, 3072 or 4096. 2048 bits give 112 bits of security, and are
        logged.
    packing : "dense" for as many values in a ciphertext as the plaintext holds, "single" for one, as in
        SenseCrypt.
    max_clients : the most updates that a total can hold, up to 2**20.
    value_bits : bits of a quantised value, sign included, 2 to 40.
    fraction_bits : bits behind the binary point, 0 to 52. A value v becomes round(v * 2**fraction_bits), ties
        to even, and must stay below 2**(value_bits - 1) in magnitude.
    max_weight : the largest integer weight that an aggregator may give a batch, up to 2**20. Keep it small:
        weights that differ much let one sum tell single updates apart
        (docs/explanation/dishonest-parties.md).
    randomizer : "short-exponent" hides a plaintext with a power of one base, which a table makes quick
        (Damgard, Jurik and Nielsen 2010); "classical" with r**n (Paillier 1999).

    Raises ParameterError when a setting is out of range.
    """

    _SETTINGS = (
        "key_bits",
        "packing",
        "max_clients",
        "value_bits",
        "fraction_bits",
        "max_weight",
        "randomizer",
    )
    key_bits: int
    """Bits of the modulus n; a ciphertext has twice as many."""
    max_weight: int
    """Largest integer weight of a batch."""
    randomizer: str
    """Kind of randomisers: ``"short-exponent"`` or ``"classical"``."""

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
            _core_of(
                key_bits=key_bits,
                packing=packing,
                max_clients=max_clients,
                value_bits=value_bits,
                fraction_bits=fraction_bits,
                max_weight=max_weight,
                randomizer=randomizer,
            )
        )
        if self.security_bits < 128:
            _LOGGER.warning(
                "Paillier with a key of %d bits has %d-bit security: use 3072 bits or more for 128",
                self.key_bits,
                self.security_bits,
            )

    def describe(self) -> str:
        """Say in a few lines what the parameters are and what follows from them."""
        facts = self._facts
        weights = f", weights up to {self.max_weight:,}" if self.max_weight > 1 else ""
        if self.randomizer == "short-exponent":
            randomizer = f"powers of one base, secret exponents of {facts['exponent_bits']:,} bits"
        else:
            randomizer = "r^n with r random below n"
        return self._describe_as(
            f"Paillier, {self.packing} packing, {self.security_bits}-bit security",
            f"  randomiser  {randomizer}",
            "  error       none: sums of quantised values are exact",
            weights=weights,
            key=f"  key         n of {self.key_bits:,} bits",
        )

    @classmethod
    def _unlogged(cls, settings: dict[str, Any]) -> Self:
        return cls._wrap(_core_of(**(cls.__init__.__kwdefaults__ or {}) | settings))

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"spare_bits": self._facts["spare_bits"]}


def _core_of(**settings: Any) -> _core.PaillierParameters:
    for name, choices in _CHOICES.items():
        if settings[name] not in choices:
            raise ParameterError(f"{name} must be {' or '.join(map(repr, choices))}, not {settings[name]!r}")
    numbers = {name: core_number(settings[name], name, width) for name, width in _WIDTHS.items()}
    return _core.PaillierParameters(**settings | numbers)


class CiphertextBatch(SchemeBatch):
    """One client's encrypted update.

    Reading one checks every field, on one thread. Residues cannot be checked without n, which does not travel
    with them: the aggregator does, before it adds any.
    """

    _read = staticmethod(lambda frame, threads: _core.PaillierCiphertext.batch(frame))


class Total(SchemeTotal):
    """The encrypted sum of a round, for the key authority, which checks its residues before it opens it."""

    _read = staticmethod(lambda frame, threads: _core.PaillierCiphertext.total(frame))

    @property
    def total_weight(self) -> int:
        """The sum of the integer weights of its batches: ``clients`` where all of them are 1."""
        return self.parsed.total_weight


class PublicKey(SchemePublicKey):
    """Encrypts and identifies; opens nothing. Clients and aggregators get this one."""

    parameters: Parameters
    _scheme = "paillier"
    _parameters_class = Parameters
    _core_class = _core.PaillierPublicKey
    _core_ciphertext = _core.PaillierCiphertext
    _core_encryptor = _core.PaillierEncryptor
    _core_aggregator = _core.PaillierAggregator
    _batch_class = CiphertextBatch
    _total_class = Total


class UnionOrder(Identified):
    """The positions that any client of a group encrypts, most popular first. Immutable.

    All clients of the group pack in this one order. A client puts zero where its own mask does not select,
    leaves out ciphertexts that would be all zero (few clients need the ciphertexts at the end), and sends
    those values in the clear instead: ``clear_fields``. The aggregator adds both.
    """

    def __init__(self, core: _core.UnionOrder) -> None:
        self._core = core

    @staticmethod
    def core_of(order: Any) -> _core.UnionOrder:
        """Return the core's object of a UnionOrder. Raises ParameterError for anything else."""
        if not isinstance(order, UnionOrder):
            raise ParameterError(
                f"expected a UnionOrder, got {type(order).__name__}: make one with UnionOrder.from_masks(...)"
            )
        return order._core

    @classmethod
    def from_masks(cls, masks: Sequence[Mask], threads: int | None = None) -> UnionOrder:
        """Order the union of all clients' masks; within a popularity positions ascend.

        Raises ParameterError for no masks, or masks of different sizes.
        """
        return cls(_core.UnionOrder.from_masks([bits_of(mask) for mask in masks], as_threads(threads)))

    @classmethod
    def from_bytes(cls, frame: Buffer, expected_size: int | None = None) -> UnionOrder:
        """Read a frame; every position is checked.

        Give ``expected_size`` for bytes that come from outside, as for ``Mask.from_bytes``. Raises
        WireFormatError.
        """
        size = None if expected_size is None else as_unsigned(expected_size, "expected_size")
        return cls(_core.UnionOrder.from_bytes(as_frame(frame), size))

    def to_bytes(self) -> bytes:
        return self._core.to_bytes()

    @property
    def size(self) -> int:
        """The number of positions of an update."""
        return self._core.size

    @property
    def count(self) -> int:
        """The number of positions in the union."""
        return len(self._core.positions)

    @property
    def positions(self) -> NDArray[np.uint32]:
        """The positions of the union in packing order, read-only, without a copy."""
        return self._core.positions

    @property
    def mask(self) -> Mask:
        """The union as a mask."""
        return Mask.from_indices(self.positions.astype(np.int64), self.size)

    @property
    def id(self) -> bytes:
        """16 bytes that identify size and order in every frame."""
        return self._core.id

    def clear_fields(self, update: Any, mask: Mask) -> NDArray[Any]:
        """Return what a client sends in the clear: its values in union order, zero where its mask selects.

        ``update`` is a float32 or float64 vector of ``size`` values, and so is, with ``count`` values, what
        is returned. Raises ArrayTypeError, and ParameterError for sizes that differ or a mask with a position
        outside of the union.
        """
        values = as_update(update)
        self._check_length(values, self.size, "the update")
        selected = bits_of(mask).to_bools()
        self._check_length(selected, self.size, "the mask")
        fields = values[self.positions]
        outside = np.count_nonzero(selected) - np.count_nonzero(selected[self.positions])
        if outside:
            raise ParameterError(
                f"the client's mask selects {outside:,} positions outside of the union: make the order from "
                "the masks of all clients in the group"
            )
        fields[selected[self.positions]] = 0
        return fields

    def gather(self, dense: NDArray[Any]) -> NDArray[Any]:
        """Return the values of a vector of ``size``, in the union's order."""
        return dense[self.positions]

    def scatter(self, sums: Any) -> NDArray[Any]:
        """Return ``size`` values: the ``count`` given in the union's order, such as sums, zeros elsewhere.

        Raises ArrayTypeError, and ParameterError for another count.
        """
        values = as_vector(sums, (np.float32, np.float64), "the vector in the union's order")
        self._check_length(values, self.count, "the vector in the union's order")
        dense: NDArray[Any] = np.zeros(self.size, dtype=values.dtype)
        dense[self.positions] = values
        return dense

    @staticmethod
    def _check_length(values: NDArray[Any], length: int, what: str) -> None:
        if values.size != length:
            raise ParameterError(f"{what} has {values.size:,} entries, expected {length:,}")

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return UnionOrder.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return f"UnionOrder({self.count:,} of {self.size:,} positions)"


class Encryptor(registry.Encryptor):
    """Encrypts masked updates under a public key. Safe to use from several threads.

    Nearly all the work is in the randomisers, which do not depend on the update: ``precompute`` makes them
    while a model trains. With randomisers of the short-exponent kind, the first use of a key takes a good
    part of a second for a table, which all encryptors of that key object share.

    Parameters
    ----------
    public_key : the key to encrypt under.
    threads : None for as many as the work is worth.
    lookups_vartime : True lets the GMP engine look table entries up by secret addresses. That is a sixth
        faster, but programs that share the processor's caches may learn the randomisers, and so the update.
        The AVX-512 engine, whose look-ups cost next to nothing, ignores it.
    """

    _keys = PublicKey

    def __init__(
        self, public_key: SchemePublicKey, threads: int | None = None, *, lookups_vartime: bool = False
    ) -> None:
        super().__init__(public_key, threads)
        if not isinstance(lookups_vartime, bool):
            raise ParameterError("lookups_vartime must be True or False: True gives up a protection")
        self._lookups_vartime = lookups_vartime
        self._pool = _core.PaillierRandomizerPool(public_key._core)
        self._with = lookups_vartime, self._pool

    def encrypt_in_union(
        self, update: Update, order: UnionOrder, mask: Mask, round: int = 0, *, clip: bool = False
    ) -> SchemeBatch:
        """Encrypt the values at the mask's positions for a group of clients whose masks differ.

        The values are in the group's order, with zeros where this client's mask does not select; ciphertexts
        that would be all zero are left out, which shows the aggregator no more than the mask that it has
        already. There is no encrypted weight: the aggregator gives an integer one.

        Parameters
        ----------
        update, round, clip : as for ``encrypt``.
        order : the union of the group's masks; ParameterError when its size is not that of the update.
        mask : this client's positions; ParameterError for one with a position outside of the union.
        """
        number, values = as_unsigned(round, "round"), as_update(update)
        positions, bits = UnionOrder.core_of(order), bits_of(mask)
        try:
            encrypted = self._core.encrypt_in_union(
                values, positions, bits, number, bool(clip), self._threads, *self._with
            )
        except RangeError as error:
            raise self._located(error, values.size) from None
        return self._batch(encrypted, number)

    def ciphertexts_for(self, count: int, weighted: bool = False) -> int:
        """Say how many ciphertexts, and so randomisers, ``count`` values take, with or without a weight."""
        fields = as_unsigned(count, "count") + bool(weighted)
        return math.ceil(fields / int(self.public_key.parameters.values_per_ciphertext))

    def precompute(self, count: int) -> None:
        """Make randomisers for ``count`` more ciphertexts on background threads; return at once.

        Encryption takes them as long as there are any; each is used once and wiped. A child process after
        fork starts with none. Raises ParameterError when more than 2**24 would wait to be used.
        """
        self._pool.precompute(as_unsigned(count, "count"), self._threads, self._lookups_vartime)

    def wait(self) -> None:
        """Wait until everything that ``precompute`` was asked for is there."""
        self._pool.wait()

    @property
    def precomputed(self) -> int:
        """How many randomisers are ready to be used."""
        return self._pool.available


class Aggregator(registry.Aggregator):
    """Sums batches, and other aggregators' totals, in the memory of one accumulator; cannot open anything.

    Raises, and keeps what it holds: WireFormatError, ParameterError (other parameters, other positions, a
    weight out of range), KeyMismatchError, PolicyError (another round), DuplicateFrameError, CapacityError.

    Parameters
    ----------
    public_key : the key that the clients encrypt under.
    threads : None for as many as the work is worth.
    round : the round whose batches are accepted; None lets the first batch decide.
    order : order of the union, for a group whose masks differ; batches in any other order are refused.
        Without it, so are batches that leave ciphertexts out: their few bytes may state a sum of any size.
    """

    def __init__(
        self,
        public_key: SchemePublicKey,
        threads: int | None = None,
        *,
        round: int | None = None,
        order: UnionOrder | None = None,
    ) -> None:
        number = None if round is None else as_unsigned(round, "round")
        union = None if order is None else UnionOrder.core_of(order)
        self._make_core(checked_key(public_key, PublicKey), number, as_threads(threads), union)

    def add(  # type: ignore[override]  # what a scheme with integer weights adds
        self, batch: SchemeBatch | FrameSource, weight: int = 1, clear: Any = None
    ) -> None:
        """Add one client's batch: an object, the bytes of one, or the file that holds them.

        Bytes are checked and added without a copy; files are mapped. They must not change meanwhile.

        Parameters
        ----------
        batch : the client's ciphertexts.
        weight : counts the client so many times, 1 to ``max_weight``; 1 for a batch with an encrypted weight.
        clear : what the client sent beside it in the clear, float32 or float64, one value for each of the
            batch's, zero where it encrypted: see ``UnionOrder.clear_fields``. It is quantised, added to the
            ciphertexts, and weighted with them. RangeError for values out of range. Nobody can see whether a
            client encrypted where it also sends a number: then both count. CapacityError where fields have no
            room for that.

        Raises OSError for a file that cannot be read.
        """
        number = min(as_unsigned(weight, "weight"), 2**32 - 1)  # above every max_weight, and refused as such
        if clear is None:
            self._add(batch, self._core.add_parsed, self._core.add_bytes, number)
        else:
            fields = as_vector(clear, (np.float32, np.float64), "what was sent in the clear")
            self._add(batch, self._core.add_parsed_mixed, self._core.add_bytes_mixed, fields, number)


class Paillier(Scheme):
    """Its pairs take seconds to make, and serve all rounds: no honest or forged ciphertext tells of them.

    Clients with different masks share ciphertexts in a :class:`UnionOrder`.
    """

    encryptions = ("paillier-dense", "paillier-single")
    key_sizes = get_args(KeyBits)
    adds_clear_values = True
    integer_weights = True
    is_slow = True
    positions_part = "order"

    def calibrated_parameters(self, encryption: str, key_bits: int) -> Any:
        return self.Parameters(key_bits=key_bits, packing=_packing(encryption))

    def update_parameters(self, encryption: str, needs: SumNeeds) -> Any:
        # Nobody can see whether a client encrypts where it also sends a plain number: fields have room for
        # both.
        return self.Parameters(
            key_bits=needs.key_bits,
            packing=_packing(encryption),
            max_clients=2 * needs.clients if needs.takes_clear_values else needs.clients,
            value_bits=needs.value_bits,
            fraction_bits=needs.fraction_bits,
            max_weight=needs.most_weight,
        )

    def positions_of(self, masks: list[Mask], threads: int | None) -> UnionOrder:
        return UnionOrder.from_masks(masks, threads)

    def read_positions(self, frame: Buffer, size: int) -> UnionOrder:
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
        return encryptor.encrypt_in_union(update, positions, own, round_number).to_bytes(), own

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
        return self.Aggregator(key, threads, round=round_number, order=positions)

    def add(
        self, aggregator: Any, client: int, frame: Buffer, weight: int, clear: NDArray[np.float32] | None
    ) -> None:
        aggregator.add(frame, weight, clear if clear is not None and clear.any() else None)


def _packing(encryption: str) -> str:
    return encryption.removeprefix("paillier-")


REGISTRY["paillier"] = Paillier(PublicKey, Encryptor, Aggregator)
