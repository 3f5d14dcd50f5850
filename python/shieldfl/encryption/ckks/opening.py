"""What the key authority alone imports: opening totals with the secret key."""

from __future__ import annotations

import shieldfl._core as _core
from shieldfl.encryption.ckks.scheme import Total

Decryptor = _core.CkksDecryptor
KeyPair = _core.CkksPublicKey


def opened_coefficients(total: Total) -> int:
    """Return what a total counts for in the budget of its key: the coefficients of its ring elements."""
    parsed = total.parsed
    return int(parsed.facts["ring_degree"]) * parsed.ciphertexts
