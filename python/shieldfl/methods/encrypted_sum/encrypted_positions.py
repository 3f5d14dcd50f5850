"""Which positions of the vector (parameters, then shared buffers) are encrypted: buffers always."""

from __future__ import annotations

from shieldfl.errors import PolicyError
from shieldfl.masks import Mask
from shieldfl.roles.message import Part
from shieldfl.selection import positions_in_budget

__all__ = ["encrypted_positions", "read_agreed_positions", "settled_positions"]


def encrypted_positions(zone: Mask, buffers: int) -> Mask:
    """Return the zone of P parameters, followed by ``buffers`` positions that are all encrypted."""
    return zone.resized(zone.size + buffers, chosen=True)


def settled_positions(share: float, parameters: int, buffers: int) -> Mask | None:
    """Return what a share in [0, 1] of the parameters encrypts where that needs no agreement: none or all of them.

    None where it has to be agreed on which.
    """
    count = positions_in_budget(share, parameters)
    if 0 < count < parameters:
        return None
    return encrypted_positions(Mask.full(parameters) if count else Mask.empty(parameters), buffers)


def read_agreed_positions(
    frame: Part, parameters: int, buffers: int, count: int, *, or_more: bool = False
) -> Mask:
    """Read the positions that other roles say were agreed on, before anything outside of them is sent in the clear.

    Raises WireFormatError for what is no mask of parameters and buffers, PolicyError unless it covers all buffers and
    ``count`` parameters (``or_more``: at least so many).
    """
    zone = Mask.from_bytes(frame, expected_size=parameters + buffers)
    chosen = zone.resized(parameters).count
    if zone.count - chosen < buffers or chosen < count or (chosen > count and not or_more):
        raise PolicyError(
            f"the positions to encrypt are not the {count:,} parameters and all buffers that were agreed on: "
            "nothing was sent"
        )
    return zone
