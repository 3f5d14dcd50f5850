"""The client's side, whatever the scheme: from an update to a batch."""

from __future__ import annotations

import re
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from shieldfl import _core
from shieldfl.array_view import Update, as_real, as_unsigned, as_update
from shieldfl.errors import RangeError
from shieldfl.masks import Mask, bits_of
from shieldfl.scheme.ciphertext import SchemeBatch
from shieldfl.uncopied import Uncopied

__all__ = ["SchemeEncryptor"]

_POSITION = re.compile(r"the value at position (\d+) ")

Batch = TypeVar("Batch", bound=SchemeBatch[Any])


class SchemeEncryptor(Uncopied, Generic[Batch]):
    """Encrypts masked updates under a public key. Safe to use from several threads."""

    _why_uncopied = (
        "may hold randomisers that are good for one use, so it is neither copied nor pickled: "
        "pass its public_key on and make another from it"
    )

    def encrypt(
        self,
        update: Update,
        mask: Mask | None = None,
        weight: float | None = None,
        round: int = 0,
        *,
        clip: bool = False,
    ) -> Batch:
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
        values = as_update(update)
        try:
            return self._encrypt(
                values,
                None if mask is None else bits_of(mask),
                None if weight is None else as_real(weight, "weight"),
                as_unsigned(round, "round"),
                bool(clip),
            )
        except RangeError as error:
            # The core's message is all that it hands over.
            if found := _POSITION.match(str(error)):
                error.position, error.size = int(found[1]), values.size
            raise

    def _encrypt(
        self,
        values: NDArray[np.float32] | NDArray[np.float64],
        mask: _core.Bitset | None,
        weight: float | None,
        round: int,
        clip: bool,
    ) -> Batch:
        raise NotImplementedError
