"""What a frame is and whether it is intact, without a key and without its contents."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Any

import shieldfl._core as _core
from shieldfl import ckks, paillier
from shieldfl.array_view import Buffer
from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.masks import Mask

__all__ = ["FrameReport", "inspect_frame"]

Fact = bool | int | float | str


@dataclass(frozen=True)
class FrameReport:
    """What a frame says of itself: kinds, ids, counts and sizes, never a value, a position or a key.

    Of a frame that is not intact, the fields repeat what its header states, which may be wrong.
    """

    kind: str
    """``"mask"``, ``"union order"``, ``"ckks public key"``, ``"ckks batch"``, ``"ckks total"``, the same three of
    ``paillier``, or ``"unknown"``."""
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
    counts: dict[str, Fact] = field(default_factory=dict)
    """What the body states of itself, by name: round, values, clients and the like."""
    parameters: dict[str, Fact] = field(default_factory=dict)
    """The encryption parameters, by name; empty where the kind has none."""
    description: str = ""
    """The parameters and what follows from them, in words."""

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
        return replace(report, **read_body(frame))
    except (WireFormatError, ParameterError) as error:
        return replace(report, intact=False, problem=str(error))


def _read_mask(frame: bytes) -> dict[str, Any]:
    facts = _core.inspect_mask(frame)
    Mask.from_bytes(frame)  # only decoding tells whether the positions fit the stated count
    return {
        "counts": {
            "positions": facts["size"],
            "chosen": facts["count"],
            "encoding": facts["encoding"],
            "payload bytes": facts["payload_bytes"],
        }
    }


def _read_union_order(frame: bytes) -> dict[str, Any]:
    order = paillier.UnionOrder.from_bytes(frame)
    return {"counts": {"positions": order.size, "in union": order.count, "positions id": order.id.hex()}}


def _read_ckks_public_key(frame: bytes) -> dict[str, Any]:
    key = _core.CkksPublicKey.from_bytes(frame)
    facts = _ckks_facts(key.parameters.facts)
    return {"parameters": facts, "description": ckks.PublicKey(key).parameters.describe()}


def _read_paillier_public_key(frame: bytes) -> dict[str, Any]:
    return _paillier_facts(_core.PaillierPublicKey.from_bytes(frame).parameters)


def _read_ckks_batch(frame: bytes) -> dict[str, Any]:
    return _describe_ckks(_core.CkksCiphertext.batch(frame))


def _read_ckks_total(frame: bytes) -> dict[str, Any]:
    return _describe_ckks(_core.CkksCiphertext.total(frame))


def _read_paillier_batch(frame: bytes) -> dict[str, Any]:
    batch = _core.PaillierCiphertext.batch(frame)
    counts = _ciphertext_counts(batch) | {"ciphertexts present": batch.present_ciphertexts}
    return {"counts": counts} | _paillier_facts(batch.parameters)


def _read_paillier_total(frame: bytes) -> dict[str, Any]:
    total = _core.PaillierCiphertext.total(frame)
    counts = _ciphertext_counts(total) | {"total weight": total.total_weight}
    return {"counts": counts} | _paillier_facts(total.parameters)


_READERS = {
    "mask": _read_mask,
    "union order": _read_union_order,
    "ckks public key": _read_ckks_public_key,
    "ckks batch": _read_ckks_batch,
    "ckks total": _read_ckks_total,
    "paillier public key": _read_paillier_public_key,
    "paillier batch": _read_paillier_batch,
    "paillier total": _read_paillier_total,
}


def _ciphertext_counts(ciphertext: _core.CkksCiphertext | _core.PaillierCiphertext) -> dict[str, Fact]:
    return {
        "round": ciphertext.round,
        "clients": ciphertext.clients,
        "values": ciphertext.count,
        "weighted": ciphertext.weighted,
        "ciphertexts": ciphertext.ciphertexts,
        "positions id": ciphertext.mask_id.hex(),
    }


def _describe_ckks(ciphertext: _core.CkksCiphertext) -> dict[str, Any]:
    return {
        "counts": _ciphertext_counts(ciphertext),
        "parameters": _ckks_facts(ciphertext.facts),
        "description": _derive_ckks(ciphertext.facts, ciphertext.parameter_id),
    }


def _ckks_facts(facts: dict[str, Any]) -> dict[str, Fact]:
    listed = ("primes", "dropped_bits")
    named = _with_spaces({name: value for name, value in facts.items() if name not in listed})
    named["modulus bits"] = sum(prime.bit_length() for prime in facts["primes"])
    named["dropped bits of c0"], named["dropped bits of c1"] = facts["dropped_bits"]
    return named


def _derive_ckks(facts: dict[str, Any], parameter_id: bytes) -> str:
    """Derive the parameters anew; empty where another version of shieldfl derived them differently."""
    names = ("packing", "max_clients", "value_bits", "fraction_bits", "ring_degree")
    try:
        parameters = ckks.Parameters(**{name: facts[name] for name in names})
    except ParameterError:
        return ""
    return parameters.describe() if parameters.id == parameter_id else ""


def _paillier_facts(parameters: _core.PaillierParameters) -> dict[str, Any]:
    return {
        "parameters": _with_spaces(parameters.facts),
        "description": paillier.Parameters._wrap(parameters).describe(),
    }


def _with_spaces(facts: dict[str, Any]) -> dict[str, Fact]:
    return {name.replace("_", " "): value for name, value in facts.items()}


def _hex(identifier: bytes) -> str | None:
    return identifier.hex() if any(identifier) else None
