"""The aggregator's sum of a round: ciphertexts, and plain numbers where clients did not encrypt."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_

import numpy as np
from numpy.typing import NDArray

from shieldfl import ckks, paillier
from shieldfl.errors import RangeError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.paillier import UnionOrder
from shieldfl.profiling.stages import StageClock
from shieldfl.roles.message import Message

__all__ = ["MixedSum", "stated_weight"]


def stated_weight(client: int, message: Message, weights: Sequence[int]) -> int:
    """Return what a client states to count, in the clear. Raises RangeError unless it is what the plan says."""
    weight = message.number("weight")
    if weight != weights[client]:
        raise RangeError(f"client {client} sent another weight than the plan gives it: nothing was added")
    return weight


class MixedSum:
    """What is encrypted in the union of clients' masks, summed; outside of it, a weighted sum of plain numbers.

    Under Paillier each client encrypts its own mask, and plain numbers are added to ciphertexts where it did not. CKKS
    ciphertexts take no plain numbers here, so there every client encrypts the union.

    Parameters
    ----------
    key : the public key.
    masks : of the clients, each of N positions; one alone where it is everybody's.
    round_number : under which the ciphertexts travel.
    weights : how much each client counts.
    weighted : whether any client's weight may be above 1: then CKKS batches have an encrypted weight.
    clock : where the stages' time goes.
    threads : for the core; None for as many as the work is worth.
    has_rest : whether plain numbers come along.
    """

    def __init__(
        self,
        key: ckks.PublicKey | paillier.PublicKey,
        masks: Sequence[Mask],
        round_number: int,
        weights: Sequence[int],
        clock: StageClock,
        threads: int | None,
        *,
        weighted: bool,
        has_rest: bool = True,
    ) -> None:
        self._has_rest = has_rest
        self._weights = weights
        self._clock = clock
        self._threads = threads
        self.union = reduce(or_, masks)
        self._order: UnionOrder | None = None
        if isinstance(key, paillier.PublicKey):
            self._order = UnionOrder.from_masks(masks, threads)
            self._ciphertexts: ckks.Aggregator | paillier.Aggregator = paillier.Aggregator(
                key, threads, round=round_number, order=self._order
            )
        else:
            self._ciphertexts = ckks.Aggregator(
                key, threads, round=round_number, positions=self.union, weighted=weighted
            )
        self._rest = ~self.union
        self._sums: NDArray[np.float64] = np.zeros(self._rest.count if has_rest else 0)
        self._weight = 0
        self._clients = 0

    def add(self, client: int, message: Message, own: Mask) -> None:
        """Add what the ``MixedUpload`` of the client with this mask wrote. What is refused changes nothing.

        Raises RangeError for another weight than the client's and for plain numbers out of range, WireFormatError for
        NaN, infinity or another number of plain numbers, and what the scheme's aggregator raises.
        """
        encrypted = self.union if self._order is None else own
        clear = self._rest if encrypted == self.union else ~encrypted
        with self._clock.stage("upload"):
            weight = stated_weight(client, message, self._weights)
            values: NDArray[np.float32] = np.empty(0, dtype=np.float32)
            if self._has_rest:
                values = message.vector("values", np.float32, clear.count)
                if not np.isfinite(values).all():
                    raise WireFormatError(f"client {client} sent NaN or infinity: its update was not added")
        with self._clock.stage("aggregate"):
            fields: NDArray[np.float32] | None = None
            if self._order is not None and clear is not self._rest:
                dense: NDArray[np.float32] = np.zeros(self.union.size, dtype=np.float32)
                clear.scatter(values, dense, self._threads)
                fields, values = dense[self._order.positions], self._rest.gather(dense, self._threads)
            self._add_ciphertexts(message["ciphertexts"], weight, fields)
            self._sums += weight * values.astype(np.float64)
            self._weight += weight
            self._clients += 1

    def _add_ciphertexts(self, frame: bytes, weight: int, fields: NDArray[np.float32] | None) -> None:
        """Add one client's ciphertexts, and what it sent in the clear in the union, in that order's."""
        if isinstance(self._ciphertexts, paillier.Aggregator):
            self._ciphertexts.add(frame, weight, fields if fields is not None and fields.any() else None)
        else:
            self._ciphertexts.add(frame)

    def union_parts(self, suffix: str) -> dict[str, bytes]:
        """Return what the clients need to know of the union, as parts of a message."""
        if self._order is None:
            return {f"union{suffix}": self.union.to_bytes()}
        return {f"order{suffix}": self._order.to_bytes()}

    def parts(self, suffix: str) -> dict[str, bytes]:
        """Return the total, as parts of a message; none where no update has arrived."""
        if not self._clients:
            return {}
        return self.union_parts(suffix) | {
            f"total{suffix}": self._ciphertexts.total().to_bytes(),
            f"sums{suffix}": self._sums.tobytes(),
            f"weight{suffix}": np.uint64(self._weight).tobytes(),
        }
