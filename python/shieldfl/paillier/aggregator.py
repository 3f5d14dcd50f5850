"""The aggregator's side: from batches to a total."""

from __future__ import annotations

from typing import Any

import numpy as np

import shieldfl._core as _core
from shieldfl.array_view import as_threads, as_unsigned, as_vector
from shieldfl.paillier.ciphertext import CiphertextBatch, Total
from shieldfl.paillier.parameters import PublicKey
from shieldfl.paillier.union_order import UnionOrder
from shieldfl.scheme.aggregator import FrameSource, SchemeAggregator

__all__ = ["Aggregator"]

_MOST_WEIGHT = 2**32 - 1  # above every max_weight, and refused as such


class Aggregator(SchemeAggregator[_core.PaillierAggregator, Total]):
    """Sums batches, and other aggregators' totals, in the memory of one accumulator; cannot open anything.

    Raises, and keeps what it holds: WireFormatError, ParameterError (other parameters, other positions, a weight
    out of range), KeyMismatchError, PolicyError (another round), DuplicateFrameError, CapacityError.

    Parameters
    ----------
    public_key : the key that the clients encrypt under.
    threads : None for as many as the work is worth.
    round : the round whose batches are accepted; None lets the first batch decide.
    order : of the union of masks, for a group whose masks differ; batches in any other order are refused. Without it,
        so are batches that leave ciphertexts out: their few bytes may state a sum of any size.
    """

    def __init__(
        self,
        public_key: PublicKey,
        threads: int | None = None,
        *,
        round: int | None = None,
        order: UnionOrder | None = None,
    ) -> None:
        number = None if round is None else as_unsigned(round, "round")
        union = None if order is None else UnionOrder.core_of(order)
        core = _core.PaillierAggregator(PublicKey.core_of(public_key), number, as_threads(threads), union)
        super().__init__(core, Total, _core.PaillierCiphertext)

    def add(self, batch: CiphertextBatch | FrameSource, weight: int = 1, clear: Any = None) -> None:
        """Add one client's batch: an object, the bytes of one, or the file that holds them.

        Bytes are checked and added without a copy; files are mapped. They must not change meanwhile.

        Parameters
        ----------
        batch : the client's ciphertexts.
        weight : counts the client so many times, 1 to ``max_weight``; 1 for a batch with an encrypted weight.
        clear : what the client sent beside it in the clear, float32 or float64, one value for each of the batch's,
            zero where it encrypted: see ``UnionOrder.clear_fields``. It is quantised, added to the ciphertexts,
            and weighted with them. RangeError for values out of range. Nobody can see whether a client encrypted
            where it also sends a number: then both count. CapacityError where fields have no room for that.

        Raises OSError for a file that cannot be read.
        """
        number = min(as_unsigned(weight, "weight"), _MOST_WEIGHT)
        if clear is None:
            self._add(
                batch,
                lambda parsed: self._core.add_parsed(parsed, number),
                lambda frame: self._core.add_bytes(frame, number),
            )
        else:
            fields = as_vector(clear, (np.float32, np.float64), "what was sent in the clear")
            self._add(
                batch,
                lambda parsed: self._core.add_parsed_mixed(parsed, fields, number),
                lambda frame: self._core.add_bytes_mixed(frame, fields, number),
            )
