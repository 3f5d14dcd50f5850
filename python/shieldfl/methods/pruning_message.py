"""How the pruning history travels with the model: compressed, since most positions are alike."""

from __future__ import annotations

import zlib

from shieldfl.errors import WireFormatError
from shieldfl.methods.consistent_pruning import PruningHistory, PruningSettings
from shieldfl.roles.message import Message

__all__ = ["HISTORY", "history_part", "read_history"]

HISTORY = "history"
"""The message part's name."""

_BYTES_PER_POSITION = 10
_MOST_OTHER_BYTES = 4096


def history_part(history: PruningHistory) -> bytes:
    """Write the part. It tells which positions are pruned: it must not reach the aggregator in the clear."""
    return zlib.compress(history.to_bytes())


def read_history(message: Message, size: int, secret: bytes, settings: PruningSettings) -> PruningHistory:
    """Read what :func:`history_part` wrote.

    Raises WireFormatError for damaged bytes or another size, ParameterError for other settings.
    """
    # No part of a message may unpack to more memory than a history takes.
    decompressor = zlib.decompressobj()
    try:
        state = decompressor.decompress(message[HISTORY], _BYTES_PER_POSITION * size + _MOST_OTHER_BYTES)
    except zlib.error as error:
        raise WireFormatError("the pruning history is damaged") from error
    if not decompressor.eof or decompressor.unused_data:
        raise WireFormatError("the pruning history is truncated, of another model, or has bytes behind it")
    return PruningHistory.from_bytes(state, size, secret, settings)
