"""Settings of methods that encrypt the same positions at every client."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from shieldfl.methods.encrypted_sum.update_parameters import FixedPoint
from shieldfl.scheme.interface import KeyBits
from shieldfl.scheme.registry import DEFAULT_ENCRYPTION, DEFAULT_KEY_BITS, encryptions
from shieldfl.settings import Share, about

__all__ = ["EncryptionSettings", "FedMlHeSettings", "MaskCryptSettings"]


@dataclass(frozen=True)
class EncryptionSettings(FixedPoint):
    """How updates are encrypted."""

    encryption: Annotated[str, about("The scheme, and its packing.", choices=encryptions)] = (
        DEFAULT_ENCRYPTION
    )
    key_bits: Annotated[KeyBits, about("Bits of a Paillier modulus.")] = DEFAULT_KEY_BITS


@dataclass(frozen=True)
class FedMlHeSettings(EncryptionSettings):
    """FedML-HE's settings."""

    ratio: Annotated[
        Share,
        about(
            "The share of the parameters that is encrypted, those with the highest sensitivity.", symbol="p"
        ),
    ] = 0.1


@dataclass(frozen=True)
class MaskCryptSettings(EncryptionSettings):
    """MaskCrypt's settings."""

    ratio: Annotated[
        Share,
        about(
            "The share of the parameters that each client proposes and, where cut is true, that is encrypted.",
            symbol="p",
        ),
    ] = 0.1
    cut: Annotated[
        bool,
        about("Cut the consensus to p, as the paper's budget wants; published code takes the whole union."),
    ] = True
