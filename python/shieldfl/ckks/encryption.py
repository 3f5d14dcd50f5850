"""From updates to batches to a total: nothing here holds a secret."""

from __future__ import annotations

import shieldfl._core as _core
from shieldfl.array_view import Pieces, as_threads, as_unsigned
from shieldfl.ckks.parameters import Parameters, PublicKey
from shieldfl.errors import ParameterError
from shieldfl.masks import Mask, bits_of
from shieldfl.scheme.encryption import (
    Encrypted,
    FrameSource,
    SchemeAggregator,
    SchemeBatch,
    SchemeEncryptor,
    SchemeTotal,
)

__all__ = ["Aggregator", "CiphertextBatch", "Encryptor", "Total"]


class CiphertextBatch(SchemeBatch[_core.CkksCiphertext]):
    """One client's encrypted update. Reading one checks every field and every residue."""

    __slots__ = ()
    _read = staticmethod(_core.CkksCiphertext.batch)


class Total(SchemeTotal[_core.CkksCiphertext]):
    """The encrypted sum of a round, for the key authority. Reading one checks every field and every residue."""

    __slots__ = ()
    _read = staticmethod(_core.CkksCiphertext.total)


class Encryptor(SchemeEncryptor[CiphertextBatch]):
    """Encrypts masked updates under a public key. Safe to use from several threads."""

    _batch_class = CiphertextBatch

    def __init__(self, public_key: PublicKey, threads: int | None = None) -> None:
        self.public_key = public_key
        self._threads = as_threads(threads)
        self._core = _core.CkksEncryptor(PublicKey.core_of(public_key))

    def _encrypt(
        self,
        pieces: Pieces,
        mask: _core.Bitset | None,
        weight: float | None,
        round: int,
        clip: bool,
    ) -> Encrypted:
        return self._core.encrypt(pieces, mask, weight, round, clip, self._threads)

    def _parameters(self) -> Parameters:
        return self.public_key.parameters


class Aggregator(SchemeAggregator[_core.CkksAggregator, Total]):
    """Sums batches, and other aggregators' totals, in the memory of one accumulator; cannot open anything.

    Raises, and keeps what it holds: WireFormatError, ParameterError (other parameters, other positions),
    KeyMismatchError, PolicyError (another round), DuplicateFrameError, CapacityError.

    Parameters
    ----------
    public_key : the key that the clients encrypt under.
    threads : None for as many as the work is worth.
    round : the round whose batches are accepted.
    positions : the mask that the clients encrypt under; ``Mask.full(size)`` where they encrypt everything.
    weighted : whether an encrypted weight travels beside the values.

    What is None of ``round``, ``positions`` and ``weighted``, the first batch decides. Give what was agreed on: one
    client that is first, and wrong, otherwise keeps all others out.
    """

    def __init__(
        self,
        public_key: PublicKey,
        threads: int | None = None,
        *,
        round: int | None = None,
        positions: Mask | None = None,
        weighted: bool | None = None,
    ) -> None:
        if not isinstance(weighted, bool | None):
            raise ParameterError(f"weighted must be True, False or None, not {weighted!r}")
        core = _core.CkksAggregator(
            PublicKey.core_of(public_key),
            None if round is None else as_unsigned(round, "round"),
            None if positions is None else bits_of(positions),
            weighted,
            as_threads(threads),
        )
        super().__init__(core, Total, _core.CkksCiphertext)

    def add(self, batch: CiphertextBatch | FrameSource) -> None:
        """Add one client's batch: an object, the bytes of one, or the file that holds them.

        Bytes are checked and added in one pass and without a copy; files are mapped. They must not change
        meanwhile. Raises OSError for a file that cannot be read.
        """
        self._add(batch, self._core.add_parsed, self._core.add_bytes)
