"""What Paillier has beside all schemes' encryption: randomisers made ahead, integer weights, and unions of masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import (
    Buffer,
    Pieces,
    Update,
    as_frame,
    as_threads,
    as_unsigned,
    as_update,
    as_vector,
)
from shieldfl.encryption import encryption
from shieldfl.encryption.encryption import Encrypted, FrameSource, SchemeBatch
from shieldfl.encryption.keys import SchemePublicKey, checked_key
from shieldfl.errors import ArrayTypeError, ParameterError
from shieldfl.masks import Mask, bits_of


class UnionOrder:
    """The positions that any client of a group encrypts, most popular first. Immutable.

    All clients of the group pack in this one order. A client puts zero where its own mask does not select, leaves
    out ciphertexts that would be all zero (few clients need the ciphertexts at the end), and sends those values
    in the clear instead: ``clear_fields``. The aggregator adds both.
    """

    __slots__ = ("_core",)

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

        Give ``expected_size`` for bytes that come from outside, as for ``Mask.from_bytes``. Raises WireFormatError.
        """
        size = None if expected_size is None else as_unsigned(expected_size, "expected_size")
        return cls(_core.UnionOrder.from_bytes(as_frame(frame), size))

    def to_bytes(self) -> bytes:
        """Encode as a frame."""
        return self._core.to_bytes()

    @property
    def size(self) -> int:
        """The number of positions of an update."""
        return self._core.size

    @property
    def count(self) -> int:
        """How many of them are in the union."""
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
        """Return what a client sends in the clear: its values in the union's order, zero where its mask selects.

        ``update`` is a float32 or float64 vector of ``size`` values, and so is, with ``count`` values, what is
        returned. Raises ArrayTypeError, and ParameterError for sizes that differ or a mask with a position outside
        of the union.
        """
        values = as_update(update)
        self._check_length(values, self.size, "the update")
        selected = bits_of(mask).to_bools()
        self._check_length(selected, self.size, "the mask")
        fields = values[self.positions]
        outside = np.count_nonzero(selected) - np.count_nonzero(selected[self.positions])
        if outside:
            raise ParameterError(
                f"the client's mask selects {outside:,} positions outside of the union: make the order from the "
                "masks of all clients in the group"
            )
        fields[selected[self.positions]] = 0
        return fields

    def gather(self, dense: NDArray[Any]) -> NDArray[Any]:
        """Return the values of a vector of ``size``, in the union's order."""
        return dense[self.positions]

    def scatter(self, sums: Any, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Put ``count`` values in the union's order, such as an opened total's, where they belong in a dense vector.

        Writes to ``out``, of ``size`` values, and leaves its other positions alone; without it, to a new vector of
        the same dtype that is zero there. Returns that vector. Raises ArrayTypeError, and ParameterError for
        sizes that differ.
        """
        values = as_vector(sums, (np.float32, np.float64), "the vector in the union's order")
        self._check_length(values, self.count, "the vector in the union's order")
        if out is None:
            dense: NDArray[Any] = np.zeros(self.size, dtype=values.dtype)
        else:
            dense = as_vector(out, (np.float32, np.float64), "the dense vector")
            self._check_length(dense, self.size, "the dense vector")
            if not dense.flags.writeable:
                raise ArrayTypeError("the dense vector is read-only: pass one that can be written to")
        dense[self.positions] = values
        return dense

    @staticmethod
    def _check_length(values: NDArray[Any], length: int, what: str) -> None:
        if values.size != length:
            raise ParameterError(f"{what} has {values.size:,} entries, expected {length:,}")

    def __eq__(self, other: object) -> bool:
        return self.id == other.id if isinstance(other, UnionOrder) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> tuple[Any, tuple[bytes]]:
        return UnionOrder.from_bytes, (self.to_bytes(),)

    def __repr__(self) -> str:
        return f"UnionOrder({self.count:,} of {self.size:,} positions)"


class Encryptor(encryption.Encryptor):
    """Encrypts masked updates under a public key. Safe to use from several threads.

    Nearly all the work is in the randomisers, which do not depend on the update: ``precompute`` makes them while a
    model trains. With randomisers of the short-exponent kind, the first use of a key takes a good part of a second
    for a table, which all encryptors of that key object share.

    Parameters
    ----------
    public_key : whom to encrypt for.
    threads : None for as many as the work is worth.
    lookups_vartime : True lets the GMP engine look table entries up by secret addresses. That is a sixth faster, but
        whoever shares the processor's caches may learn the randomisers, and with them the update. The AVX-512
        engine, whose look-ups cost next to nothing, ignores it.
    """

    _of_one_scheme = True

    def __init__(
        self, public_key: SchemePublicKey, threads: int | None = None, *, lookups_vartime: bool = False
    ) -> None:
        super().__init__(public_key, threads)
        if not isinstance(lookups_vartime, bool):
            raise ParameterError("lookups_vartime must be True or False: True gives up a protection")
        self._lookups_vartime = lookups_vartime
        self._pool = _core.PaillierRandomizerPool(public_key._core)

    def _encrypt(
        self,
        pieces: Pieces,
        mask: _core.Bitset | None,
        weight: float | None,
        round: int,
        clip: bool,
    ) -> Encrypted:
        made: Encrypted = self._core.encrypt(
            pieces, mask, weight, round, clip, self._threads, self._lookups_vartime, self._pool
        )
        return made

    def encrypt_in_union(
        self, update: Update, order: UnionOrder, mask: Mask, round: int = 0, *, clip: bool = False
    ) -> SchemeBatch:
        """Encrypt the values at the mask's positions for a group of clients whose masks differ.

        The values are in the group's order, with zeros where this client's mask does not select; ciphertexts that
        would be all zero are left out, which shows the aggregator no more than the mask that it has already.
        There is no encrypted weight: the aggregator gives an integer one.

        Parameters
        ----------
        update, round, clip : as for ``encrypt``.
        order : the union of the group's masks; ParameterError when its size is not that of the update.
        mask : this client's positions; ParameterError for one with a position outside of the union.
        """
        number, values = as_unsigned(round, "round"), as_update(update)
        with self._locating(values.size):
            encrypted = self._core.encrypt_in_union(
                values,
                UnionOrder.core_of(order),
                bits_of(mask),
                number,
                bool(clip),
                self._threads,
                self._lookups_vartime,
                self._pool,
            )
        return self._make_batch(encrypted, number)

    def ciphertexts_for(self, count: int, weighted: bool = False) -> int:
        """Say how many ciphertexts, and so randomisers, ``count`` values take, with or without a weight."""
        fields = as_unsigned(count, "count") + bool(weighted)
        return math.ceil(fields / int(self.public_key.parameters.values_per_ciphertext))

    def precompute(self, count: int) -> None:
        """Make randomisers for ``count`` more ciphertexts on background threads; return at once.

        Encryption takes them as long as there are any; each is used once and wiped. A child process after fork
        starts with none. Raises ParameterError when more than 2**24 would wait to be used.
        """
        self._pool.precompute(as_unsigned(count, "count"), self._threads, self._lookups_vartime)

    def wait(self) -> None:
        """Wait until everything that ``precompute`` was asked for is there."""
        self._pool.wait()

    @property
    def precomputed(self) -> int:
        """How many randomisers are ready to be used."""
        return self._pool.available


_MOST_WEIGHT = 2**32 - 1  # above every max_weight, and refused as such


class Aggregator(encryption.Aggregator):
    """Sums batches, and other aggregators' totals, in the memory of one accumulator; cannot open anything.

    Raises, and keeps what it holds: WireFormatError, ParameterError (other parameters, other positions, a weight
    out of range), KeyMismatchError, PolicyError (another round), DuplicateFrameError, CapacityError.

    Parameters
    ----------
    public_key : the key that the clients encrypt under.
    threads : None for as many as the work is worth.
    round : the round whose batches are accepted; None lets the first batch decide.
    order : of the union of masks, for a group whose masks differ; batches in any other order are refused. Without it,
        so are batches that leave ciphertexts out: their few bytes may state a sum of any size.
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
        self._set_up(checked_key(public_key, SchemePublicKey, True), number, as_threads(threads), union)

    def add(  # type: ignore[override]  # what a scheme with integer weights adds
        self, batch: SchemeBatch | FrameSource, weight: int = 1, clear: Any = None
    ) -> None:
        """Add one client's batch: an object, the bytes of one, or the file that holds them.

        Bytes are checked and added without a copy; files are mapped. They must not change meanwhile.

        Parameters
        ----------
        batch : the client's ciphertexts.
        weight : counts the client so many times, 1 to ``max_weight``; 1 for a batch with an encrypted weight.
        clear : what the client sent beside it in the clear, float32 or float64, one value for each of the batch's,
            zero where it encrypted: see ``UnionOrder.clear_fields``. It is quantised, added to the ciphertexts,
            and weighted with them. RangeError for values out of range. Nobody can see whether a client encrypted
            where it also sends a number: then both count. CapacityError where fields have no room for that.

        Raises OSError for a file that cannot be read.
        """
        number = min(as_unsigned(weight, "weight"), _MOST_WEIGHT)
        if clear is None:
            self._add(
                batch,
                lambda parsed: self._core.add_parsed(parsed, number),
                lambda frame: self._core.add_bytes(frame, number),
            )
        else:
            fields = as_vector(clear, (np.float32, np.float64), "what was sent in the clear")
            self._add(
                batch,
                lambda parsed: self._core.add_parsed_mixed(parsed, fields, number),
                lambda frame: self._core.add_bytes_mixed(frame, fields, number),
            )
