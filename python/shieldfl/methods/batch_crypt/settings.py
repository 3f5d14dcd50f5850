"""BatchCrypt's settings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from shieldfl.array_view import as_real, as_unsigned
from shieldfl.errors import ParameterError

__all__ = ["BatchCryptSettings"]

_LEAST_WIDTH, _MOST_WIDTH = 2, 32


@dataclass(frozen=True)
class BatchCryptSettings:
    """How updates are quantised and encrypted. Raises ParameterError for values out of range."""

    width: int = 16
    """r: bits of a quantised sum, sign included, 2 to 32; the paper takes 8 and 16."""
    key_bits: int = 3072
    """Of the Paillier modulus."""
    largest_update: float = 8.0
    """The largest magnitude that a client may state of its updates. Clip bounds follow from what clients state, so one
    that states a huge one would move the model at will."""

    def __post_init__(self) -> None:
        if not _LEAST_WIDTH <= as_unsigned(self.width, "width") <= _MOST_WIDTH:
            raise ParameterError(f"width must be {_LEAST_WIDTH} to {_MOST_WIDTH} bits")
        if as_unsigned(self.key_bits, "key_bits") not in (2048, 3072, 4096):
            raise ParameterError("key_bits must be 2048, 3072 or 4096")
        if not 0.0 < as_real(self.largest_update, "largest_update") < math.inf:
            raise ParameterError("largest_update must be positive and finite")
