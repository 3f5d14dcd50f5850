"""Key-additive encryption: an encrypted update as small as a plain one, and lies about a sum that open to noise.

Each client shares a key of its own with the key authority, and hides each update with a one-time secret from it.
Whoever sums ciphertexts asks the authority for the sum of the secrets of those who are in the sum; the authority sees
neither ciphertexts nor what they open to. See ``docs/kahe.md``.
"""

from shieldfl.encryption.answers import open_answered as open
from shieldfl.encryption.kahe.scheme import (
    Aggregator,
    CiphertextBatch,
    Encryptor,
    Parameters,
    PublicKey,
    Total,
)
from shieldfl.encryption.keys import ClientKey

__all__ = [
    "Aggregator",
    "CiphertextBatch",
    "ClientKey",
    "Encryptor",
    "Parameters",
    "PublicKey",
    "Total",
    "open",
]
