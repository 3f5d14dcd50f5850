"""The aggregator's sum of a round: ciphertexts, and plain numbers where clients did not encrypt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from shieldfl.errors import RangeError, WireFormatError
from shieldfl.masks import Mask
from shieldfl.profiling.stages import StageClock
from shieldfl.roles.message import Message
from shieldfl.scheme.keys import SchemePublicKey
from shieldfl.scheme.registry import scheme_of
from shieldfl.stateful import Stateful

__all__ = ["MixedSum", "are_summable", "clear_sums_part", "read_clear_sums", "stated_weight"]


_MOST = float(np.finfo(np.float32).max)


def are_summable(values: NDArray[np.float32], weights: int) -> bool:
    """Say whether all are numbers, so small that clients of these weights together cannot leave float32 with them."""
    limit = np.nextafter(np.float32(_MOST / weights), np.float32(0.0))  # however that was rounded
    return bool((np.abs(values) <= limit).all())


def clear_sums_part(sums: NDArray[np.float64]) -> bytes:
    """Return sums as a part of a message, float32: rounded once, when all are in.

    In doubles, they would be twice as many bytes to each client that opens, for digits that its model does not have.
    What float32 cannot hold becomes infinite, which whoever reads it refuses.
    """
    with np.errstate(over="ignore"):
        return sums.astype("<f4").tobytes()


def read_clear_sums(message: Message, name: str, size: int) -> NDArray[np.float64]:
    """Return what :func:`clear_sums_part` wrote. Raises WireFormatError for another number of sums, NaN or infinity."""
    sums: NDArray[np.float64] = message.vector(name, np.float32, size).astype(np.float64)
    if not np.isfinite(sums).all():
        raise WireFormatError(f"part {name!r} holds NaN or infinity")
    return sums


def stated_weight(client: int, message: Message, weights: Sequence[int]) -> int:
    """Return what a client states to count, in the clear. Raises RangeError unless it is what the plan says."""
    weight = message.number("weight")
    if weight != weights[client]:
        raise RangeError(f"client {client} sent another weight than the plan gives it: nothing was added")
    return weight


class MixedSum(Stateful):
    """What is encrypted in the union of clients' masks, summed; outside of it, a weighted sum of plain numbers.

    Where the scheme adds plain numbers to ciphertexts each client encrypts its own mask, and plain numbers are added
    where it did not. Otherwise every client encrypts the union.

    Parameters
    ----------
    key : the public key.
    masks : of the clients, each of N positions; one alone where it is everybody's.
    round_number : under which the ciphertexts travel.
    weights : how much each client counts.
    weighted : whether any client's weight may be above 1: where weights travel encrypted, batches then have one.
    clock : where the stages' time goes.
    threads : for the core; None for as many as the work is worth.
    has_rest : whether plain numbers come along.
    """

    changes: ClassVar = {
        "_sums": NDArray[np.float64],
        "_weight": int,
        "_clients": int,
        "_added": bytes | None,
    }

    def __init__(
        self,
        key: SchemePublicKey,
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
        self._scheme = scheme_of(key)
        self.positions = self._scheme.positions_of(list(masks), threads)
        self.union = self.positions.mask
        self._ciphertexts = self._scheme.aggregator(
            key, threads, round_number, self.positions, weighted=weighted, purpose="update"
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
        encrypted = own if self._scheme.adds_clear_values else self.union
        clear = self._rest if encrypted == self.union else ~encrypted
        with self._clock.stage("upload"):
            weight = stated_weight(client, message, self._weights)
            values: NDArray[np.float32] = np.empty(0, dtype=np.float32)
            if self._has_rest:
                values = message.vector("values", np.float32, clear.count)
                if not are_summable(values, sum(self._weights)):
                    raise WireFormatError(
                        f"client {client} sent NaN, infinity, or numbers that no sum of all clients' has room for: its "
                        "update was not added"
                    )
        with self._clock.stage("aggregate"):
            fields: NDArray[np.float32] | None = None
            if clear is not self._rest:
                dense: NDArray[np.float32] = np.zeros(self.union.size, dtype=np.float32)
                clear.scatter(values, dense, self._threads)
                fields, values = self.positions.gather(dense), self._rest.gather(dense, self._threads)
            self._scheme.add(self._ciphertexts, client, message["ciphertexts"], weight, fields)
            self._sums += weight * values.astype(np.float64)
            self._weight += weight
            self._clients += 1

    def is_of(self, union: Mask | None, clients: int) -> bool:
        """Say whether this union is encrypted, and so many clients were added, ciphertexts and plain numbers alike."""
        return self.union == union and self._clients == self._ciphertexts.clients == clients

    def check_changed(self) -> None:
        """Raise WireFormatError for sums of other sizes, or of a weight that the clients do not have."""
        super().check_changed()
        least, most = self._clients * min(self._weights), self._clients * max(self._weights)
        if (
            not 0 <= self._clients <= len(self._weights)
            or not least <= self._weight <= most
            or self._sums.size != (self._rest.count if self._has_rest else 0)
            or not np.isfinite(self._sums).all()
        ):
            raise WireFormatError("the state holds a sum that these clients' updates cannot have")

    @property
    def _added(self) -> bytes | None:
        return self._ciphertexts.total().to_bytes() if self._clients else None

    @_added.setter
    def _added(self, total: bytes | None) -> None:
        if total is not None:
            self._ciphertexts.add_total(total)

    def union_parts(self, suffix: str) -> dict[str, bytes]:
        """Return what the clients need to know of the union, as parts of a message."""
        return {f"{self._scheme.positions_part}{suffix}": self.positions.to_bytes()}

    def parts(self, suffix: str) -> dict[str, bytes]:
        """Return the total, as parts of a message; none where no update has arrived."""
        if not self._clients:
            return {}
        return self.union_parts(suffix) | {
            f"total{suffix}": self._ciphertexts.total().to_bytes(),
            f"sums{suffix}": clear_sums_part(self._sums),
            f"weight{suffix}": np.uint64(self._weight).tobytes(),
        }
