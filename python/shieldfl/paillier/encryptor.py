"""The client's side: from an update to a batch."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import Update, as_threads, as_unsigned, as_update
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask, bits_of
from shieldfl.paillier.ciphertext import CiphertextBatch
from shieldfl.paillier.parameters import Parameters, PublicKey
from shieldfl.paillier.union_order import UnionOrder
from shieldfl.scheme.encryptor import Encrypted, SchemeEncryptor

__all__ = ["Encryptor"]


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
        values: NDArray[np.float32] | NDArray[np.float64],
        mask: _core.Bitset | None,
        weight: float | None,
        round: int,
        clip: bool,
    ) -> Encrypted:
        return self._core.encrypt(
            values, mask, weight, round, clip, self._threads, self._lookups_vartime, self._pool
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
        number = as_unsigned(round, "round")
        encrypted = self._core.encrypt_in_union(
            as_update(update),
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
