"""Parts of messages in which something of each of several key authorities stands, one after the other."""

from __future__ import annotations

from shieldfl.errors import WireFormatError
from shieldfl.roles.message import Part

__all__ = ["piece_of_each", "pieces_of_length"]


def piece_of_each(joined: Part, authorities: int) -> list[Part]:
    """Return each authority's piece: all are of one length. Raises WireFormatError for a part without such pieces."""
    length, rest = divmod(len(joined), authorities)
    if rest:
        raise WireFormatError(f"this is not something of each of {authorities} key authorities")
    return [joined[number * length : (number + 1) * length] for number in range(authorities)]


def pieces_of_length(joined: Part, length: int) -> list[Part]:
    """Return pieces of a length, however many there are: the last may be shorter, and an empty part is one piece."""
    return [joined[start : start + length] for start in range(0, len(joined), length)] or [joined]
