"""The aggregator's sum of a round: ciphertexts, and plain numbers where clients did not encrypt."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from shieldfl import ckks, paillier
from shieldfl.masks import Mask
from shieldfl.methods.expected_batch import read_expected_batch
from shieldfl.paillier import UnionOrder

__all__ = ["MixedSum"]


class MixedSum:
    """What is encrypted in the union of clients' masks, summed; outside of it, a weighted sum of plain numbers.

    Under Paillier each client encrypts its own mask, and plain numbers are added to ciphertexts where it did not. CKKS
    ciphertexts take no plain numbers here, so there every client encrypts the union.

    Parameters
    ----------
    key : the public key.
    masks : of the clients, each of N positions; one alone where it is everybody's.
    round_number : under which the ciphertexts travel.
    weighted : whether CKKS batches have an encrypted weight.
    threads : for the core; None for all cores.
    has_rest : whether plain numbers come along.
    """

    def __init__(
        self,
        key: ckks.PublicKey | paillier.PublicKey,
        masks: Sequence[Mask],
        round_number: int,
        weighted: bool,
        threads: int | None,
        *,
        has_rest: bool = True,
    ) -> None:
        self._has_rest = has_rest
        self._round = round_number
        self._weighted = weighted
        self._order: UnionOrder | None = None
        if isinstance(key, paillier.PublicKey):
            self._order = UnionOrder.from_masks(masks, threads)
            self.union = self._order.mask
            self._ciphertexts: ckks.Aggregator | paillier.Aggregator = paillier.Aggregator(
                key, threads, round=round_number, order=self._order
            )
        else:
            self.union = masks[0]
            for mask in masks[1:]:
                self.union = self.union | mask
            self._ciphertexts = ckks.Aggregator(key, threads, round=round_number)
        self._sums: NDArray[np.float64] = np.zeros(self.union.size)
        self._weight = 0
        self._clients = 0

    def positions_of(self, mask: Mask) -> Mask:
        """Return what a client with this mask encrypts."""
        return self.union if self._order is None else mask

    def add(self, ciphertexts: bytes, clear: NDArray[np.float32], weight: int) -> None:
        """Add one client's ciphertexts and plain numbers: float32 (N,), zero where it encrypted.

        What is refused changes nothing.
        """
        if isinstance(self._ciphertexts, paillier.Aggregator):
            assert self._order is not None
            fields = clear[self._order.positions]
            self._ciphertexts.add(ciphertexts, weight, fields if fields.any() else None)
        else:
            self._ciphertexts.add(
                read_expected_batch(ciphertexts, self.union, self._round, weighted=self._weighted)
            )
        self._sums += weight * clear.astype(np.float64)
        self._weight += weight
        self._clients += 1

    def union_parts(self, suffix: str) -> dict[str, bytes]:
        """Return what the clients need to know of the union, as parts of a message."""
        if self._order is None:
            return {f"union{suffix}": self.union.to_bytes()}
        return {f"order{suffix}": self._order.to_bytes()}

    def parts(self, suffix: str) -> dict[str, bytes]:
        """Return the total, as parts of a message; none where no update has arrived."""
        if not self._clients:
            return {}
        rest = (~self.union).gather(self._sums) if self._has_rest else self._sums[:0]
        return self.union_parts(suffix) | {
            f"total{suffix}": self._ciphertexts.total().to_bytes(),
            f"sums{suffix}": rest.tobytes(),
            f"weight{suffix}": np.uint64(self._weight).tobytes(),
        }
