"""All that is drawn for privacy: noise, shares of noise, and the rotation of a round.

Noise is the core's, from a seed of the operating system's. Callers take each function from this module as they call it:
a test puts seeded ones in its place.
"""

from __future__ import annotations

import hashlib

import shieldfl._core as _core

add_gaussian = _core.add_gaussian
"""In place, on float32 values; the others clip, and return new ones."""
clip_and_add_gaussian = _core.clip_and_add_gaussian
clip_and_add_discrete_gaussian_vartime = _core.clip_and_add_discrete_gaussian_vartime
noise_share_vartime = _core.noise_share_vartime


def rotation_seed(session: bytes, round_number: int) -> bytes:
    """Return the 32 bytes that a round's rotation is chosen by: they follow from the session and the round.

    Whoever sets the federation up draws the session, and nobody chooses a rotation. It is public, and matters to
    accuracy alone: it spreads an update over its values, so that few bits hold each.
    """
    return hashlib.sha256(b"shieldfl rotation 1\0" + session + round_number.to_bytes(8, "little")).digest()
