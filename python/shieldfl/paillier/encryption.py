"""From updates to batches to a total: nothing here holds a secret."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import shieldfl._core as _core
from shieldfl.array_view import Pieces, Update, as_threads, as_unsigned, as_update, as_vector
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask, bits_of
from shieldfl.paillier.parameters import Parameters, PublicKey
from shieldfl.paillier.union_order import UnionOrder
from shieldfl.scheme.encryption import (
    Ciphertext,
    Encrypted,
    FrameSource,
    SchemeAggregator,
    SchemeBatch,
    SchemeEncryptor,
    SchemeTotal,
)
from shieldfl.scheme.interface import UnionMask

__all__ = ["Aggregator", "CiphertextBatch", "Encryptor", "Total"]


class _Positioned(Ciphertext[_core.PaillierCiphertext]):
    """A frame whose values may be in the order of a union."""

    __slots__ = ()

    def is_of(self, positions: Mask | UnionMask | UnionOrder) -> bool:
        """Say whether its values belong to the positions of this mask, or are in this union's order."""
        if isinstance(positions, UnionOrder):
            return self.parsed.mask_id == positions.id and self.count == positions.count
        return super().is_of(positions)


class CiphertextBatch(_Positioned, SchemeBatch[_core.PaillierCiphertext]):
    """One client's encrypted update.

    Reading one checks every field, on one thread. Residues cannot be checked without n, which does not travel with
    them: the aggregator does, before it adds any.
    """

    __slots__ = ()

    @staticmethod
    def _read(frame: bytes, threads: int) -> _core.PaillierCiphertext:
        return _core.PaillierCiphertext.batch(frame)


class Total(_Positioned, SchemeTotal[_core.PaillierCiphertext]):
    """The encrypted sum of a round, for the key authority, which checks its residues before it opens it."""

    __slots__ = ()

    @staticmethod
    def _read(frame: bytes, threads: int) -> _core.PaillierCiphertext:
        return _core.PaillierCiphertext.total(frame)

    @property
    def total_weight(self) -> int:
        """The sum of the integer weights of its batches: ``clients`` where all of them are 1."""
        return self.parsed.total_weight


class Encryptor(SchemeEncryptor[CiphertextBatch]):
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

    _batch_class = CiphertextBatch

    def __init__(
        self, public_key: PublicKey, threads: int | None = None, *, lookups_vartime: bool = False
    ) -> None:
        self.public_key = public_key
        self._threads = as_threads(threads)
        if not isinstance(lookups_vartime, bool):
            raise ParameterError("lookups_vartime must be True or False: True gives up a protection")
        self._lookups_vartime = lookups_vartime
        key = PublicKey.core_of(public_key)
        self._core = _core.PaillierEncryptor(key)
        self._pool = _core.PaillierRandomizerPool(key)

    def _encrypt(
        self,
        pieces: Pieces,
        mask: _core.Bitset | None,
        weight: float | None,
        round: int,
        clip: bool,
    ) -> Encrypted:
        return self._core.encrypt(
            pieces, mask, weight, round, clip, self._threads, self._lookups_vartime, self._pool
        )

    def _parameters(self) -> Parameters:
        return self.public_key.parameters

    def encrypt_in_union(
        self, update: Update, order: UnionOrder, mask: Mask, round: int = 0, *, clip: bool = False
    ) -> CiphertextBatch:
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
        return math.ceil(fields / self.public_key.parameters.values_per_ciphertext)

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


class Aggregator(SchemeAggregator[_core.PaillierAggregator, Total]):
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
        public_key: PublicKey,
        threads: int | None = None,
        *,
        round: int | None = None,
        order: UnionOrder | None = None,
    ) -> None:
        number = None if round is None else as_unsigned(round, "round")
        union = None if order is None else UnionOrder.core_of(order)
        core = _core.PaillierAggregator(PublicKey.core_of(public_key), number, as_threads(threads), union)
        super().__init__(core, Total, _core.PaillierCiphertext)

    def add(self, batch: CiphertextBatch | FrameSource, weight: int = 1, clear: Any = None) -> None:
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
