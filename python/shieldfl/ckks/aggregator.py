"""The aggregator's side: from batches to a total."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable

from shieldfl import _core
from shieldfl.array_view import Buffer, as_threads, as_unsigned, frame_buffer, mapped_frame
from shieldfl.ckks.ciphertext import CiphertextBatch, Total
from shieldfl.ckks.keys import PublicKey, core_key

__all__ = ["Aggregator"]


class Aggregator:
    """Sums batches, and other aggregators' totals, in the memory of one accumulator; cannot open anything.

    Raises, and keeps what it holds: WireFormatError, ParameterError (other parameters, other positions),
    KeyMismatchError, PolicyError (another round), DuplicateFrameError, CapacityError.

    Parameters
    ----------
    public_key : the key that the clients encrypt under.
    threads : None for all cores.
    round : the round whose batches are accepted; None lets the first batch decide.
    """

    def __init__(
        self, public_key: PublicKey, threads: int | None = None, *, round: int | None = None
    ) -> None:
        number = None if round is None else as_unsigned(round, "round")
        self._core = _core.CkksAggregator(core_key(public_key), number, as_threads(threads))

    def add(self, batch: CiphertextBatch | Buffer | mmap.mmap | os.PathLike[str]) -> None:
        """Add one client's batch: an object, the bytes of one, or the file that holds them.

        Bytes are checked and added in one pass and without a copy; files are mapped. They must not change
        meanwhile. Raises OSError for a file that cannot be read.
        """
        self._add(batch, self._core.add_parsed, self._core.add_bytes)

    def add_total(self, total: Total | Buffer | mmap.mmap | os.PathLike[str]) -> None:
        """Add the total of another aggregator, which stands for all clients that it names.

        Take totals from aggregators alone, over a channel that tells who is who: a client that could pass one
        off would count as many. Raises as ``add`` does, DuplicateFrameError if any of its batches is in the sum.
        """
        self._add(total, self._core.add_parsed_total, self._core.add_total_bytes)

    @staticmethod
    def _add(
        source: CiphertextBatch | Total | Buffer | mmap.mmap | os.PathLike[str],
        add_parsed: Callable[[_core.CkksCiphertext], None],
        add_bytes: Callable[[Buffer | mmap.mmap], None],
    ) -> None:
        if isinstance(source, (CiphertextBatch, Total)):
            if source.is_parsed:
                add_parsed(source.parsed)
            else:
                add_bytes(source.to_bytes())
        elif isinstance(source, os.PathLike):
            with mapped_frame(source) as frame:
                add_bytes(frame)
        else:
            add_bytes(frame_buffer(source))

    def total(self) -> Total:
        """Return the sum so far. Raises ParameterError before the first batch."""
        return Total(self._core.total())

    @property
    def clients(self) -> int:
        """How many batches are in the sum."""
        return self._core.clients

    @property
    def round(self) -> int | None:
        """The round that is summed; None before the first batch unless it was given."""
        return self._core.round
