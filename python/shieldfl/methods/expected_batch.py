"""Reads a client's CKKS batch and refuses one that does not belong into the round's sum."""

from __future__ import annotations

from shieldfl import ckks
from shieldfl.errors import ParameterError, PolicyError
from shieldfl.masks import Mask

__all__ = ["read_expected_batch"]


def read_expected_batch(
    frame: bytes, positions: Mask, round_number: int, *, weighted: bool = False
) -> ckks.CiphertextBatch:
    """Read a batch of these positions.

    The first batch decides what an Aggregator goes on to accept, so a wrong one must not get there. Raises
    PolicyError for another round, ParameterError for other positions or a weight where none belongs (or none where
    one does), WireFormatError.
    """
    batch = ckks.CiphertextBatch.from_bytes(frame)
    if batch.round != round_number:
        raise PolicyError(
            f"the ciphertexts are of round {batch.round}, not {round_number}: they were not added"
        )
    if not batch.is_of(positions) or batch.weighted != weighted:
        raise ParameterError(
            f"the ciphertexts hold {batch.count} values of other positions than the {positions.count} expected, or "
            f"their weight is {'missing' if weighted else 'not asked for'}: they were not added"
        )
    return batch
