"""How the pruning history travels with the model: compressed, since most positions are alike."""

from __future__ import annotations

import zlib

from shieldfl.errors import WireFormatError
from shieldfl.methods.dict_pfl.consistent_pruning import PruningHistory
from shieldfl.methods.dict_pfl.settings import PruningSettings
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.roles.message import Message

__all__ = ["HISTORY", "history_part", "model_message", "read_history"]

HISTORY = "history"
"""The message part's name."""

_BYTES_PER_POSITION = 10
_MOST_OTHER_BYTES = 4096


def history_part(history: PruningHistory) -> bytes:
    """Write the part: the compressed history. The round's signature binds it to the round and to the model beside it.

    It tells which positions are pruned: it must not reach the aggregator in the clear.
    """
    return zlib.compress(history.to_bytes())


def read_history(message: Message, size: int, secret: bytes, settings: PruningSettings) -> PruningHistory:
    """Read what :func:`history_part` wrote, of a message whose signature was looked at: it says whose uploads count.

    Raises WireFormatError for one that is damaged or of another size, ParameterError for other settings.
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


def model_message(model: GlobalModel, history: PruningHistory) -> Message:
    """Encode the model with the history: a client that was away for rounds needs nothing else."""
    return Message({**model.to_message(), HISTORY: history_part(history)})
