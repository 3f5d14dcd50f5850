"""The client's side, whatever the scheme: from an update to a batch."""

from __future__ import annotations

import re
import warnings
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

import shieldfl._core as _core
from shieldfl.array_view import Update, as_real, as_unsigned, as_update
from shieldfl.errors import PrecisionWarning, RangeError
from shieldfl.masks import Mask, bits_of
from shieldfl.scheme.ciphertext import SchemeBatch
from shieldfl.scheme.parameters import SchemeParameters
from shieldfl.uncopied import Uncopied

__all__ = ["SchemeEncryptor"]

_POSITION = re.compile(r"the value at position (\d+) ")

Batch = TypeVar("Batch", bound=SchemeBatch[Any])

_ALLOWED_UNDERFLOW = 0.1
"""The share of the values that are not zero which may round to zero without a warning."""

Encrypted = tuple[bytes, tuple[int, int, int]]
"""A frame, and how many values were not zero, rounded to zero, and were saturated."""


class SchemeEncryptor(Uncopied, Generic[Batch]):
    """Encrypts masked updates under a public key. Safe to use from several threads."""

    _batch_class: type[Batch]
    _warned_round: int | None = None
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
            take part. Positive, in steps of ``weight_step``: divide by the largest that any client has. A small
            weight makes small values, for which the scale has to be fine enough: see ``Parameters.fit``.
        round : the round that the batch is good for.
        clip : saturate values that are out of range, and count them in ``clipped``, instead of refusing them.

        Raises RangeError that names the first position whose value is NaN, infinite or out of range. Values that
        round to zero are counted in ``underflowed``; a PrecisionWarning comes, once a round, when these are more
        than a tenth of those that are not zero.
        """
        values, number = as_update(update), as_unsigned(round, "round")
        try:
            encrypted = self._encrypt(
                values,
                None if mask is None else bits_of(mask),
                None if weight is None else as_real(weight, "weight"),
                number,
                bool(clip),
            )
        except RangeError as error:
            # The core's message is all that it hands over.
            if found := _POSITION.match(str(error)):
                error.position, error.size = int(found[1]), values.size
            raise
        return self._make_batch(encrypted, number)

    def _make_batch(self, encrypted: Encrypted, round: int) -> Batch:
        """Make the batch; warn whoever called the caller of values that are lost."""
        frame, (nonzero, underflowed, clipped) = encrypted
        if underflowed > _ALLOWED_UNDERFLOW * nonzero and self._warned_round != round:
            self._warned_round = round
            step = f"2^-{self._parameters().fraction_bits}"
            warnings.warn(
                f"{underflowed:,} of the {nonzero:,} values that are not zero round to zero: times the weight, if "
                f"any, they are below half of the step {step}, and the sum loses them. Take the scale from "
                "Parameters.fit(sample_update, weights=...), or raise fraction_bits and value_bits",
                PrecisionWarning,
                stacklevel=3,
            )
        return self._batch_class(frame, clipped, underflowed)

    def _parameters(self) -> SchemeParameters[Any, Any]:
        raise NotImplementedError

    def _encrypt(
        self,
        values: NDArray[np.float32] | NDArray[np.float64],
        mask: _core.Bitset | None,
        weight: float | None,
        round: int,
        clip: bool,
    ) -> Encrypted:
        raise NotImplementedError
