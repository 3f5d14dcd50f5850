"""What a run's account has come to, as bytes and back: for whoever keeps it on a disk between two rounds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self, get_args

import msgspec

from shieldfl.errors import ParameterError, WireFormatError
from shieldfl.privacy.events import PrivacyEvent

__all__ = ["AccountState"]

_KINDS: dict[str, Any] = {kind.__name__: kind for kind in get_args(PrivacyEvent)}


@dataclass(frozen=True)
class AccountState:
    """Plain data, of which an account's figures follow."""

    told: list[tuple[str, Any]]
    """Events in their order, each after the name of its kind."""
    remarks: dict[str, str]
    rounds_of_remarks: dict[str, int]
    tallies: dict[str, tuple[int, int]]
    seconds: dict[str, float]

    @staticmethod
    def named(events: Iterable[PrivacyEvent]) -> list[tuple[str, Any]]:
        """Return what ``told`` is."""
        return [(type(event).__name__, event) for event in events]

    def events(self) -> list[PrivacyEvent]:
        """Return the events. Raises WireFormatError for what is none."""
        return self.events_of(self.told)

    @staticmethod
    def events_of(named: Iterable[tuple[str, Any]]) -> list[PrivacyEvent]:
        """Return what :meth:`named` was given. Raises WireFormatError for what is none."""
        try:
            return [msgspec.convert(fields, type=_KINDS[kind]) for kind, fields in named]
        except (KeyError, msgspec.MsgspecError, ParameterError) as error:
            raise WireFormatError("the account holds an event that is of no kind") from error

    def to_bytes(self) -> bytes:
        """Encode."""
        return msgspec.msgpack.encode(self)

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> Self:
        """Read what :meth:`to_bytes` wrote. Raises WireFormatError."""
        try:
            return msgspec.msgpack.decode(data, type=cls)
        except msgspec.MsgspecError as error:
            raise WireFormatError("these bytes are no account that this version can read") from error
