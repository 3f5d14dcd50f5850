"""Paillier encryption of model updates, with one value in a plaintext or as many as it holds.

The verbs are those of :mod:`shieldfl.encryption.ckks`, and sums are exact. On top of them, batches can be multiplied by
integer weights, an :class:`Encryptor` can precompute randomisers, and clients with different masks can
share packed ciphertexts through a :class:`UnionOrder`. See ``docs/paillier.md``.

Only :class:`shieldfl.KeyAuthority` holds a secret key.
"""

from shieldfl.encryption.paillier.encryption import Aggregator, Encryptor, UnionOrder
from shieldfl.encryption.paillier.scheme import CiphertextBatch, Parameters, PublicKey, Total

__all__ = ["Aggregator", "CiphertextBatch", "Encryptor", "Parameters", "PublicKey", "Total", "UnionOrder"]
