"""One-time pads: the simplest additively homomorphic cipher, under the same trust, enrolment and answers as ``kahe``.

Each client adds a key stream that it shares with the key authority; the sum of the streams of those who are in a total
opens it, and nothing else. No lattice assumption; the price is an authority whose work grows with clients and values,
and an answer as long as the total. See ``docs/pads.md``.
"""

from shieldfl.encryption.answers import open_answered as open
from shieldfl.encryption.keys import ClientKey
from shieldfl.encryption.pads.scheme import (
    Aggregator,
    CiphertextBatch,
    Encryptor,
    Parameters,
    PublicKey,
    Total,
)

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
