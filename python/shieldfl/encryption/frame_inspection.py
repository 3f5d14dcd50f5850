"""What a frame is and whether it is intact, without a key and without its contents."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import shieldfl._core as _core
from shieldfl.array_view import Buffer
from shieldfl.encryption.interface import FrameBody
from shieldfl.encryption.registry import REGISTRY
from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.masks import Mask


@dataclass(frozen=True, kw_only=True)
class FrameReport(FrameBody):
    """What a frame says of itself: kinds, ids, counts and sizes, never a value, a position or a key.

    Of a frame that is not intact, the fields repeat what its header states, which may be wrong.
    """

    kind: str
    """``"mask"``, ``"union order"``, ``"ckks public key"``, ``"ckks batch"``, ``"ckks total"``, the same three of
    ``paillier`` and ``kahe``, ``"kahe sum request"``, ``"kahe sum key"``, or ``"unknown"``."""
    intact: bool
    """Every check passed: length, checksum, and every field of the body that this version can read."""
    problem: str
    """What is wrong and what to do about it; empty when intact."""
    size_bytes: int
    """The bytes that were given."""
    declared_bytes: int | None
    """The bytes that the header states; None without a header."""
    version: int | None
    """Of the wire format; None without a header."""
    checksum_ok: bool
    parameter_id: str | None
    """32 hexadecimal digits; None where the kind has none."""
    key_id: str | None
    """32 hexadecimal digits; None where the kind has none."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return asdict(self)


def inspect_frame(frame: Buffer) -> FrameReport:
    """Check a frame of any kind and say what it is. Never raises for what the bytes are."""
    frame = bytes(frame)
    summary = _core.summarise_frame(frame)
    report = FrameReport(
        kind=summary.kind_name if summary.has_magic else "unknown",
        intact=not summary.problem,
        problem=summary.problem,
        size_bytes=len(frame),
        declared_bytes=summary.declared_bytes if summary.has_magic else None,
        version=summary.version if summary.has_magic else None,
        checksum_ok=summary.checksum_ok,
        parameter_id=_hex(summary.parameter_id),
        key_id=_hex(summary.key_id),
    )
    if not report.intact:
        return report
    read_body = _READERS.get(report.kind)
    if read_body is None:
        problem = f"frame kind {summary.kind} is none that this version reads: update shieldfl"
        return replace(report, intact=False, problem=problem)
    try:
        return replace(report, **vars(read_body(frame)))
    except (WireFormatError, ParameterError) as error:
        return replace(report, intact=False, problem=str(error))


def _mask_body(frame: bytes) -> FrameBody:
    facts = _core.inspect_mask(frame)
    Mask.from_bytes(frame)  # only decoding tells whether the positions fit the stated count
    return FrameBody(
        {
            "positions": facts["size"],
            "chosen": facts["count"],
            "encoding": facts["encoding"],
            "payload bytes": facts["payload_bytes"],
        }
    )


_READERS: dict[str, Callable[[bytes], FrameBody]] = {"mask": _mask_body}
for _scheme in REGISTRY.values():
    _READERS |= _scheme.frame_readers


def _hex(identifier: bytes) -> str | None:
    return identifier.hex() if any(identifier) else None
