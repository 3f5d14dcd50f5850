"""What a frame is and whether it is intact, without a key and without its contents."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import shieldfl._core as _core
from shieldfl.array_view import Buffer
from shieldfl.encryption.paillier import UnionOrder
from shieldfl.encryption.registry import REGISTRY, Fact, Scheme
from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.masks import Mask


@dataclass(frozen=True, kw_only=True)
class FrameReport:
    """What a frame says of itself: kinds, ids, counts and sizes, never a value, a position or a key.

    If a frame is not intact, the fields repeat what its header states, which may be wrong.
    """

    kind: str
    """Kind of the frame, such as ``"mask"`` or ``"kahe sum request"``; ``"unknown"`` without a header."""
    intact: bool
    """Whether every check passed: length, checksum, and all fields of the body that this version can read."""
    problem: str
    """What is wrong with the frame and what to do about it; empty if it is intact."""
    size_bytes: int
    declared_bytes: int | None
    """Length in bytes that the header states; None without a header."""
    version: int | None
    checksum_ok: bool
    parameter_id: str | None
    """Id of the encryption parameters, 32 hexadecimal digits; None if the kind has none."""
    key_id: str | None
    counts: dict[str, Fact] = field(default_factory=dict)
    """Round, values, clients and the like, by name."""
    parameters: dict[str, Fact] = field(default_factory=dict)
    """Encryption parameters by name; empty if the kind has none."""
    description: str = ""
    """A public key's parameters and what follows from them, or what a sum key is, in words; else empty."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def inspect_frame(frame: Buffer) -> FrameReport:
    """Check a frame of any kind and say what it is. Never raises for what the bytes are."""
    frame = bytes(frame)
    summary = _core.summarise_frame(frame)
    known = summary.has_magic
    report = FrameReport(
        kind=summary.kind_name if known else "unknown",
        intact=not summary.problem,
        problem=summary.problem,
        size_bytes=len(frame),
        declared_bytes=summary.declared_bytes if known else None,
        version=summary.version if known else None,
        checksum_ok=summary.checksum_ok,
        parameter_id=_hex(summary.parameter_id),
        key_id=_hex(summary.key_id),
    )
    if not report.intact:
        return report
    name, _, of_scheme = report.kind.partition(" ")
    read_body = _READERS.get(of_scheme if name in REGISTRY else report.kind)
    if read_body is None:
        problem = f"frame kind {summary.kind} is none that this version reads: update shieldfl"
        return replace(report, intact=False, problem=problem)
    try:
        return replace(report, **read_body(REGISTRY.get(name), frame))
    except (WireFormatError, ParameterError) as error:
        return replace(report, intact=False, problem=str(error))


def _hex(identifier: bytes) -> str | None:
    return identifier.hex() if any(identifier) else None


Body = dict[str, Any]
"""Fields of a report that a frame's body gives: counts, parameters and description, as far as it has them."""


def _mask_body(scheme: None, frame: bytes) -> Body:
    facts = _core.inspect_mask(frame)
    Mask.from_bytes(frame)  # only decoding tells whether the positions fit the stated count
    counts = {"positions": facts["size"], "chosen": facts["count"], "encoding": facts["encoding"]}
    return {"counts": counts | {"payload bytes": facts["payload_bytes"]}}


def _order_body(scheme: None, frame: bytes) -> Body:
    order = UnionOrder.from_bytes(frame)
    return {"counts": {"positions": order.size, "in union": order.count, "positions id": order.id.hex()}}


def _key_body(scheme: Scheme, frame: bytes) -> Body:
    key = scheme.PublicKey.from_bytes(frame)
    counts: dict[str, Fact] = {}
    if scheme.enrols:
        counts = {"epoch": key.epoch, "authority": key._core.authority.hex()}
        counts["manifest digest"] = key.manifest_digest.hex()
    return {"counts": counts, **_parameters(key.parameters._facts), "description": key.parameters.describe()}


def _ciphertext_body(kind: str, scheme: Scheme, frame: bytes) -> Body:
    ciphertext: Any = getattr(scheme.PublicKey._core_ciphertext, kind)(frame)
    counts = _counts(scheme, ciphertext, ciphertext.clients) | {"ciphertexts": ciphertext.ciphertexts}
    if not scheme.integer_weights:
        return {"counts": counts, **_parameters(ciphertext.facts)}
    if kind == "total":
        counts["total weight"] = ciphertext.total_weight
    else:
        counts["ciphertexts present"] = ciphertext.present_ciphertexts
    return {"counts": counts, **_parameters(ciphertext.parameters.facts)}


def _request_body(scheme: Scheme, frame: bytes) -> Body:
    asked = scheme.PublicKey.read_request(frame)
    counts = _counts(scheme, asked, len(asked.participants))
    return {"counts": counts | {"total digest": asked.total_digest.hex()}}


def _sum_key_body(scheme: Scheme, frame: bytes) -> Body:
    """Read what stands before the numbers, which are secret: their use shows whether each is in range."""
    head = scheme.Total._core_request.head_of_sum_key(frame)
    stated = scheme.sum_key_facts(head["unit"], head["count"])
    return {
        "counts": {"clients": head["clients"], **stated, "total digest": head["total_digest"].hex()},
        "description": "the sum of one-time secrets that opens one total; secret, and for the opener alone",
    }


def _counts(scheme: Scheme, one: Any, clients: int) -> dict[str, Fact]:
    counts = {"round": one.round, "clients": clients, "values": one.count, "weighted": one.weighted}
    addressed = {"purpose id": one.purpose.hex(), "part": one.part} if scheme.enrols else {}
    return counts | {"positions id": one.mask_id.hex()} | addressed


def _parameters(facts: Mapping[str, Any]) -> Body:
    """Return parameters by readable names; primes as their modulus' bits, other tuples as an entry each."""
    named: dict[str, Fact] = {}
    for name, value in facts.items():
        words = name.replace("_", " ")
        if name == "primes":
            named["modulus bits"] = sum(prime.bit_length() for prime in value)
        elif isinstance(value, tuple):
            named |= {f"{words} of c{half}": bits for half, bits in enumerate(value)}
        else:
            named[words] = value
    return {"parameters": named}


_READERS: dict[str, Callable[[Any, bytes], Body]] = {
    "mask": _mask_body,
    "union order": _order_body,
    "public key": _key_body,
    "batch": partial(_ciphertext_body, "batch"),
    "total": partial(_ciphertext_body, "total"),
    "sum request": _request_body,
    "sum key": _sum_key_body,
}
"""Readers of bodies by kind; for a scheme's kinds, by what follows the scheme's name."""
