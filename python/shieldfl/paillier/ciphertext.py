"""What travels: a client's batch, a round's total."""

from __future__ import annotations

import shieldfl._core as _core
from shieldfl.masks import Mask
from shieldfl.paillier.union_order import UnionOrder
from shieldfl.scheme.ciphertext import Ciphertext, SchemeBatch, SchemeTotal
from shieldfl.scheme.interface import UnionMask

__all__ = ["CiphertextBatch", "Total"]


class _Positioned(Ciphertext[_core.PaillierCiphertext]):
    """A frame whose values may be in the order of a union."""

    __slots__ = ()

    def is_of(self, positions: Mask | UnionMask | UnionOrder) -> bool:
        """Say whether its values belong to the positions of this mask, or are in this union's order."""
        if isinstance(positions, UnionOrder):
            return self.parsed.mask_id == positions.id and self.count == positions.count
        return super().is_of(positions)


class CiphertextBatch(_Positioned, SchemeBatch[_core.PaillierCiphertext]):
    """One client's encrypted update.

    Reading one checks every field, on one thread. Residues cannot be checked without n, which does not travel with
    them: the aggregator does, before it adds any.
    """

    __slots__ = ()

    @staticmethod
    def _read(frame: bytes, threads: int) -> _core.PaillierCiphertext:
        return _core.PaillierCiphertext.batch(frame)


class Total(_Positioned, SchemeTotal[_core.PaillierCiphertext]):
    """The encrypted sum of a round, for the key authority, which checks its residues before it opens it."""

    __slots__ = ()

    @staticmethod
    def _read(frame: bytes, threads: int) -> _core.PaillierCiphertext:
        return _core.PaillierCiphertext.total(frame)

    @property
    def total_weight(self) -> int:
        """The sum of the integer weights of its batches: ``clients`` where all of them are 1."""
        return self.parsed.total_weight
