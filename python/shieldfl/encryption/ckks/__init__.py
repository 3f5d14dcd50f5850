"""RLWE encryption of model updates: pack, encrypt, sum, serialise.

Two packings. ``exact`` puts fixed-point integers into polynomial coefficients; a total opens to the integer
sum, bit for bit. ``slots`` is the canonical embedding of the CKKS scheme; its totals are approximate and are
flooded with noise when they are opened. See ``docs/packings.md``.

Only :class:`shieldfl.KeyAuthority` holds a secret key.
"""

from shieldfl.encryption.ckks.scheme import (
    Aggregator,
    CiphertextBatch,
    Encryptor,
    Parameters,
    PublicKey,
    Total,
)

__all__ = ["Aggregator", "CiphertextBatch", "Encryptor", "Parameters", "PublicKey", "Total"]
