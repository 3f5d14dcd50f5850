"""The client's side: from an update to a batch."""

from __future__ import annotations

from typing import Any

from shieldfl import _core
from shieldfl.array_view import as_real, as_threads, as_unsigned, as_update
from shieldfl.ckks.ciphertext import CiphertextBatch
from shieldfl.ckks.keys import PublicKey, core_key
from shieldfl.masks import Mask, bits_of

__all__ = ["Encryptor"]


class Encryptor:
    """Encrypts masked updates under a public key. Safe to use from several threads."""

    def __init__(self, public_key: PublicKey, threads: int | None = None) -> None:
        self.public_key = public_key
        self._threads = as_threads(threads)
        self._core = _core.CkksEncryptor(core_key(public_key))

    def encrypt(
        self,
        update: Any,
        mask: Mask | None = None,
        weight: float | None = None,
        round: int = 0,
        *,
        clip: bool = False,
    ) -> CiphertextBatch:
        """Encrypt the values at the mask's positions, in one pass and without a copy of the update.

        Parameters
        ----------
        update : float32 or float64 vector, contiguous: NumPy or CPU torch. ArrayTypeError otherwise.
        mask : which positions; None for all. ParameterError when its size is not that of the update.
        weight : scales the update and travels encrypted beside it, so that the mean is right whichever clients
            take part. Positive, at most ``value_limit``: divide by the largest client's.
        round : the round that the batch is good for.
        clip : saturate values that are out of range, and count them in ``clipped``, instead of refusing them.

        Raises RangeError that names the first position whose value is NaN, infinite or out of range.
        """
        frame, clipped = self._core.encrypt(
            as_update(update),
            None if mask is None else bits_of(mask),
            None if weight is None else as_real(weight, "weight"),
            as_unsigned(round, "round"),
            bool(clip),
            self._threads,
        )
        return CiphertextBatch(frame, clipped)
