"""A client's update as it travels: encrypted at some positions, as plain numbers elsewhere, or not at all."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from shieldfl import ckks, paillier
from shieldfl.errors import PolicyError
from shieldfl.masks import Mask
from shieldfl.roles.message import Message

__all__ = ["MixedUpload"]


class MixedUpload:
    """Makes the parts ``ciphertexts``, ``values`` and ``weight`` that a ``MixedSum`` adds.

    Parameters
    ----------
    key : the public key, of either scheme.
    weight, most_weight : what this client counts, and the largest that any counts.
    sends_rest : whether values that are not encrypted are sent in the clear, or not at all.
    threads : for the core; None for as many as the work is worth.
    """

    def __init__(
        self,
        key: ckks.PublicKey | paillier.PublicKey,
        weight: int,
        most_weight: int,
        threads: int | None,
        *,
        sends_rest: bool = True,
    ) -> None:
        self.key = key
        self.encryptor: ckks.Encryptor | paillier.Encryptor
        if isinstance(key, paillier.PublicKey):
            self.encryptor = paillier.Encryptor(key, threads)
        else:
            self.encryptor = ckks.Encryptor(key, threads)
        self._threads = threads
        self._weight = weight
        self._encrypted_weight = None if most_weight == 1 else weight / most_weight
        self._sends_rest = sends_rest
        self._order_of_zone: tuple[Mask, paillier.UnionOrder] | None = None

    def read_union(self, message: Message, size: int) -> paillier.UnionOrder | Mask:
        """Read what ``MixedSum.union_parts`` wrote. Raises WireFormatError."""
        if isinstance(self.encryptor, paillier.Encryptor):
            return paillier.UnionOrder.from_bytes(message["order"], size)
        return Mask.from_bytes(message["union"], expected_size=size)

    def union_of(self, zone: Mask) -> paillier.UnionOrder | Mask:
        """Return the union of masks that all equal this zone. It is kept until another zone is given."""
        if isinstance(self.encryptor, ckks.Encryptor):
            return zone
        if self._order_of_zone is None or self._order_of_zone[0] != zone:
            self._order_of_zone = zone, paillier.UnionOrder.from_masks([zone], self._threads)
        return self._order_of_zone[1]

    def encrypt(
        self,
        update: NDArray[np.float32] | NDArray[np.float64],
        own: Mask,
        union: paillier.UnionOrder | Mask,
        round_number: int,
    ) -> tuple[bytes, Mask]:
        """Encrypt an update (N,) and say which positions that covered.

        Under Paillier these are the client's ``own``, packed in the union's order; under CKKS the whole union.
        Raises PolicyError or ParameterError for a union that leaves out some of its own, RangeError.
        """
        if isinstance(self.encryptor, paillier.Encryptor):
            assert isinstance(union, paillier.UnionOrder)
            return self.encryptor.encrypt_in_union(update, union, own, round_number).to_bytes(), own
        assert isinstance(union, Mask)
        if (own - union).count:
            raise PolicyError("the union leaves out positions that this client protects: nothing was sent")
        batch = self.encryptor.encrypt(update, union, self._encrypted_weight, round_number)
        return batch.to_bytes(), union

    def parts(
        self, update: NDArray[np.float32] | NDArray[np.float64], ciphertexts: bytes, encrypted: Mask
    ) -> dict[str, bytes]:
        """Return the message parts of an update whose ``encrypted`` positions are in the ciphertexts."""
        parts = {"weight": np.uint64(self._weight).tobytes(), "ciphertexts": ciphertexts}
        if self._sends_rest:
            parts["values"] = (~encrypted).gather(update).tobytes()
        return parts
