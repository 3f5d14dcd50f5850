"""What the key authority alone imports: opening totals with the secret key."""

from __future__ import annotations

import shieldfl._core as _core
from shieldfl.encryption.paillier.scheme import Total

Decryptor = _core.PaillierDecryptor
KeyPair = _core.PaillierPublicKey


def opened_coefficients(total: Total) -> int:
    """Return what a total counts for in the budget of its key: its values."""
    return total.count + total.weighted
