"""The clipping norm as a part of the message that a round starts from, beside the model's."""

from __future__ import annotations

import numpy as np

from shieldfl.errors import WireFormatError
from shieldfl.privacy.clip_rule import MOST_EXPONENT
from shieldfl.roles.message import Message

__all__ = ["CLIP_EXPONENT", "clip_part", "read_clip_exponent"]

CLIP_EXPONENT = "clip exponent"
"""A signed 64-bit number: see :class:`shieldfl.privacy.clip_rule.ClipRule`."""


def clip_part(exponent: int) -> dict[str, bytes]:
    """Return the part that tells an exponent."""
    return {CLIP_EXPONENT: np.int64(exponent).astype("<i8").tobytes()}


def read_clip_exponent(model: Message) -> int:
    """Read the part. Raises WireFormatError where it is missing, of another length, or beyond what any round has."""
    exponent = int(model.vector(CLIP_EXPONENT, np.int64, 1)[0])
    if abs(exponent) > MOST_EXPONENT:
        raise WireFormatError(
            "the round's clipping norm is not within 2^-16 and 2^16 of the first: nothing is trained or sent"
        )
    return exponent
