"""How the pruning history travels with the model: compressed, since most positions are alike."""

from __future__ import annotations

import hmac
import zlib

from shieldfl.errors import PolicyError, WireFormatError
from shieldfl.methods.dict_pfl.consistent_pruning import PruningHistory, history_tag
from shieldfl.methods.dict_pfl.settings import PruningSettings
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.roles.message import Message

__all__ = ["HISTORY", "history_part", "model_message", "read_history"]

HISTORY = "history"
"""The message part's name."""

_BYTES_PER_POSITION = 10
_MOST_OTHER_BYTES = 4096
_TAG_BYTES = 32


def history_part(history: PruningHistory) -> bytes:
    """Write the part: an HMAC under the shared secret, and the compressed history.

    It tells which positions are pruned: it must not reach the aggregator in the clear.
    """
    compressed = zlib.compress(history.to_bytes())
    return history.tag_of(compressed) + compressed


def read_history(message: Message, size: int, secret: bytes, settings: PruningSettings) -> PruningHistory:
    """Read what :func:`history_part` wrote.

    Raises PolicyError for a history that somebody without the secret wrote or altered: it says whose uploads count.
    Raises WireFormatError for one of another size, ParameterError for other settings.
    """
    part = message[HISTORY]
    tag, compressed = bytes(part[:_TAG_BYTES]), bytes(part[_TAG_BYTES:])
    if not hmac.compare_digest(tag, history_tag(secret, compressed)):
        raise PolicyError(
            "the pruning history is damaged, or was written by somebody without the secret: it was not used"
        )
    # No part of a message may unpack to more memory than a history takes.
    decompressor = zlib.decompressobj()
    try:
        state = decompressor.decompress(compressed, _BYTES_PER_POSITION * size + _MOST_OTHER_BYTES)
    except zlib.error as error:
        raise WireFormatError("the pruning history is damaged") from error
    if not decompressor.eof or decompressor.unused_data:
        raise WireFormatError("the pruning history is truncated, of another model, or has bytes behind it")
    return PruningHistory.from_bytes(state, size, secret, settings)


def model_message(model: GlobalModel, history: PruningHistory) -> Message:
    """Encode the model with the history: a client that was away for rounds needs nothing else."""
    return Message({**model.to_message(), HISTORY: history_part(history)})
