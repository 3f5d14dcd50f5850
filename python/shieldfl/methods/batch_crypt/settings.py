"""BatchCrypt's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from shieldfl.scheme.interface import KeyBits
from shieldfl.settings import Positive, Settings, about

__all__ = ["ENCRYPTION", "BatchCryptSettings"]

ENCRYPTION = "paillier-dense"
"""What the paper packs its integers in."""


@dataclass(frozen=True)
class BatchCryptSettings(Settings):
    """How updates are quantised and encrypted."""

    width: Annotated[
        int,
        Meta(ge=2, le=32),
        about("Bits of a quantised sum, sign included; the paper takes 8 and 16.", symbol="r"),
    ] = 16
    key_bits: Annotated[KeyBits, about("Bits of the Paillier modulus.")] = 3072
    largest_update: Annotated[
        Positive,
        about(
            "The largest magnitude that a client may state of its updates. Clip bounds follow from what clients state, "
            "so one that states a huge one would move the model at will."
        ),
    ] = 8.0
