"""The aggregator's side: from batches to a total."""

from __future__ import annotations

from shieldfl import _core
from shieldfl.array_view import Buffer, as_frame, as_threads, as_unsigned
from shieldfl.ckks.ciphertext import CiphertextBatch, Total
from shieldfl.ckks.keys import PublicKey, core_key

__all__ = ["Aggregator"]


class Aggregator:
    """Sums batches as they arrive, in the memory of one; cannot open anything.

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

    def add(self, batch: CiphertextBatch | Buffer) -> None:
        """Add one client's batch, or the bytes of one."""
        if isinstance(batch, CiphertextBatch):
            self._core.add_parsed(batch.parsed)
        else:
            self._core.add_bytes(as_frame(batch))

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
