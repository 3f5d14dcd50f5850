"""What is public about a federation that was set up: made once, where the secrets are, and given to everybody."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from shieldfl.array_view import Buffer, frame_buffer
from shieldfl.errors import KeyMismatchError, ParameterError, WireFormatError
from shieldfl.methods.protocol.global_model import GlobalModel
from shieldfl.methods.protocol.plan import FederationPlan

__all__ = ["PublicSetup", "model_digest", "plain_settings"]

_FORMAT = "shieldfl public set-up 1"


def model_digest(initial: GlobalModel) -> bytes:
    """Return what a set-up pins of the model before the first round: SHA-256 of its numbers, 32 bytes."""
    digest = hashlib.sha256(b"shieldfl initial model 1\0")
    for vector in (initial.parameters, initial.buffers):
        digest.update(vector.size.to_bytes(8, "little"))
        digest.update(vector.astype("<f4", copy=False).tobytes())
    return digest.digest()


def plain_settings(settings: Any) -> dict[str, Any]:
    """Return a method's settings, a dataclass or None for none, as JSON has them."""
    entry: dict[str, Any] = {} if settings is None else json.loads(json.dumps(asdict(settings)))
    return entry


@dataclass(frozen=True)
class PublicSetup:
    """Everything that clients and aggregator need to know; nothing of it is secret.

    Clients pin its :attr:`digest`, which they get on a channel that they trust.
    """

    method: str
    settings: Mapping[str, Any]
    """Of the method, resolved, as plain data."""
    plan: FederationPlan
    initial_digest: bytes
    """Of the model before the first round, see :func:`model_digest`: 32 bytes."""
    session: bytes
    """Of this federation alone: 16 random bytes."""
    signing_key: bytes = field(default=b"")
    """The key authority's Ed25519 public key, 32 bytes; empty for a method without keys."""

    def to_bytes(self) -> bytes:
        """Encode as JSON, always the same for the same set-up."""
        entry = asdict(self) | {
            "format": _FORMAT,
            "settings": dict(self.settings),
            **{name: getattr(self, name).hex() for name in _BYTES},
        }
        return json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, data: Buffer) -> PublicSetup:
        """Read what :meth:`to_bytes` wrote. Raises WireFormatError for anything else."""
        try:
            entry = json.loads(bytes(frame_buffer(data)))
            if entry.pop("format") != _FORMAT or set(entry) != {one.name for one in fields(cls)}:
                raise WireFormatError("these bytes are no public set-up of this version")
            plan = entry["plan"]
            plan["layer_offsets"] = tuple(plan["layer_offsets"])
            unhexed = {name: bytes.fromhex(entry[name]) for name in _BYTES}
            if len(unhexed["session"]) != 16 or len(unhexed["initial_digest"]) != 32:
                raise WireFormatError("a public set-up has a session of 16 bytes and a digest of 32")
            if len(unhexed["signing_key"]) not in (0, 32) or not isinstance(entry["method"], str):
                raise WireFormatError(
                    "a public set-up has a method's name, and a signing key of 32 bytes or none"
                )
            if not isinstance(entry["settings"], dict):
                raise WireFormatError("a public set-up has a table of settings")
            return cls(entry["method"], entry["settings"], FederationPlan(**plan), **unhexed)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ParameterError) as error:
            raise WireFormatError(f"these bytes are no public set-up: {error}") from error

    @property
    def digest(self) -> bytes:
        """SHA-256 of the encoded set-up, 32 bytes."""
        return hashlib.sha256(self.to_bytes()).digest()

    def check_digest(self, pinned: bytes) -> None:
        """Raise KeyMismatchError unless this is the set-up whose digest a client has pinned."""
        if self.digest != pinned:
            raise KeyMismatchError(
                "this is another public set-up than the one that was pinned: ask whoever set the federation up"
            )

    def check_model(self, initial: GlobalModel) -> None:
        """Raise KeyMismatchError unless this is the model that the federation begins with."""
        if model_digest(initial) != self.initial_digest:
            raise KeyMismatchError(
                "this is another model than the federation begins with: take the one that it was set up with"
            )


_BYTES = ("initial_digest", "session", "signing_key")
