"""The client's side: from an update to a batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import as_threads
from shieldfl.ckks.ciphertext import CiphertextBatch
from shieldfl.ckks.parameters import Parameters, PublicKey
from shieldfl.scheme.encryptor import Encrypted, SchemeEncryptor

__all__ = ["Encryptor"]


class Encryptor(SchemeEncryptor[CiphertextBatch]):
    """Encrypts masked updates under a public key. Safe to use from several threads."""

    _batch_class = CiphertextBatch

    def __init__(self, public_key: PublicKey, threads: int | None = None) -> None:
        self.public_key = public_key
        self._threads = as_threads(threads)
        self._core = _core.CkksEncryptor(PublicKey.core_of(public_key))

    def _encrypt(
        self,
        values: NDArray[np.float32] | NDArray[np.float64],
        mask: _core.Bitset | None,
        weight: float | None,
        round: int,
        clip: bool,
    ) -> Encrypted:
        return self._core.encrypt(values, mask, weight, round, clip, self._threads)

    def _parameters(self) -> Parameters:
        return self.public_key.parameters
