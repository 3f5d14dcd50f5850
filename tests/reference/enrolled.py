"""What clients and a key authority derive from what they share, once more, slowly: for every scheme in which they do.

Nothing here is constant-time or meant for use. Names and orders of bytes are those of ``cpp/enrolled/context.h`` and of
docs/reference/wire-format.md.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

LEAF_BYTES = 8192
"""Of a total's frame that are hashed as one leaf."""


def derive(scheme: str, label: str, data: bytes, key: bytes = b"") -> bytes:
    """Return 32 bytes that follow from data and a key, for one purpose in one scheme."""
    text = f"shieldfl {scheme} 1 {label}\0".encode()
    return hashlib.blake2b(text + data, digest_size=32, key=key).digest()


@dataclass(frozen=True)
class Context:
    """What a frame's secret is bound to, beside client and frame id."""

    scheme: str
    parameter_id: bytes
    manifest: bytes
    authority: bytes
    epoch: int
    round: int
    purpose: bytes
    part: int
    mask_id: bytes
    count: int
    weighted: bool

    def encode(self) -> bytes:
        """Return its fields but the scheme one after the other, each of a fixed length."""
        numbers = struct.pack("<IQ", self.epoch, self.round)
        tail = struct.pack("<Q?", self.count, self.weighted)
        part = struct.pack("<I", self.part)
        return (
            self.parameter_id
            + self.manifest
            + self.authority
            + numbers
            + self.purpose
            + part
            + self.mask_id
            + tail
        )


def session_key(scheme: str, long_term_secret: bytes, key_id: bytes, client: int) -> bytes:
    """Return a client's key of round 0."""
    return derive(scheme, "session", key_id + struct.pack("<I", client), long_term_secret)


def ratchet(scheme: str, key: bytes, rounds: int = 1) -> bytes:
    """Return a client's key so many rounds later."""
    for _ in range(rounds):
        key = derive(scheme, "ratchet", b"", key)
    return key


def frame_seed(key: bytes, context: Context, client: int, frame_id: bytes) -> bytes:
    """Return the seed of a frame's one-time secret; the key is of the context's round."""
    return derive(context.scheme, "frame", context.encode() + struct.pack("<I", client) + frame_id, key)


def sum_digest(context: Context, participants: Sequence[tuple[int, bytes]]) -> bytes:
    """Return the digest of a context and of clients with their frames' ids."""
    listed = b"".join(struct.pack("<I", client) + frame_id for client, frame_id in participants)
    return derive(context.scheme, "sum", context.encode() + struct.pack("<Q", len(participants)) + listed)


def total_digest(frame: bytes, beside: bytes = b"") -> bytes:
    """Return the digest of a total's frame: BLAKE2b in its tree mode. ``beside``: of what else is sent."""
    starts = range(0, max(len(frame), 1), LEAF_BYTES)
    leaves = b"".join(
        _node(frame[start : start + LEAF_BYTES], 0, number, last=number + 1 == len(starts))
        for number, start in enumerate(starts)
    )
    root = _node(leaves, 1, 0, last=True)
    if not beside:
        return root
    return hashlib.blake2b(root + beside, digest_size=32, person=b"shieldfl beside1").digest()


def _node(data: bytes, layer: int, number: int, last: bool) -> bytes:
    return hashlib.blake2b(
        data,
        digest_size=32,
        person=b"shieldfl total 1",
        fanout=0,
        depth=2,
        leaf_size=LEAF_BYTES,
        inner_size=32,
        node_depth=layer,
        node_offset=number,
        last_node=last,
    ).digest()
