"""A round's public keys as clients and aggregator take them: signed by the key authority, for that round alone.

Whoever holds the secret half of a CKKS pair opens everything that was encrypted under it, and one client that does not
follow the protocol can get it out of an opened sum (docs/threat-model.md). So a pair serves one round, and a key that
comes with a round has to be told from one that somebody else made, or that an earlier round had.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from shieldfl.array_view import as_unsigned
from shieldfl.errors import KeyMismatchError, PolicyError, ShieldError, WireFormatError
from shieldfl.installing import how_to_install
from shieldfl.roles.message import Message, Part
from shieldfl.scheme.keys import SchemePublicKey
from shieldfl.scheme.parameters import SchemeParameters
from shieldfl.scheme.registry import scheme_of
from shieldfl.stateful import Stateful

__all__ = ["SESSION_BYTES", "RoundKeyCheck", "RoundKeyReader", "ed25519", "round_key_parts", "signed_bytes"]

SESSION_BYTES = 16
_DOMAIN = b"shieldfl round key 1\0"
_KEY, _SIGNATURE = "round key ", "round signature "
_KEPT_KEYS = 8

PublicKey = SchemePublicKey[Any]
Parameters = SchemeParameters[Any, Any]


def ed25519() -> Any:
    """Return the module that signs and verifies. Raises ShieldError where it is not installed."""
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519 as module
    except ImportError as error:
        raise ShieldError(
            f"signed round keys need the package 'cryptography': {how_to_install('keys')}"
        ) from error
    return module


def signed_bytes(session: bytes, round_number: int, purpose: str, key_frame: bytes) -> bytes:
    """Return what a signature covers: a domain tag, the session (16 bytes), round, purpose and the key's frame."""
    name = purpose.encode()
    return _DOMAIN + session + struct.pack("<QB", round_number, len(name)) + name + key_frame


def round_key_parts(message: Message) -> dict[str, Part]:
    """Return the parts of a round's first message that bring its keys."""
    return {name: part for name, part in message.items() if name.startswith((_KEY, _SIGNATURE))}


def encode_round_key(purpose: str, key_frame: bytes, signature: bytes) -> dict[str, bytes]:
    """Return the parts of one key."""
    return {_KEY + purpose: key_frame, _SIGNATURE + purpose: signature}


@functools.lru_cache(maxsize=_KEPT_KEYS)
def _read_key(scheme: type[PublicKey], frame: bytes) -> PublicKey:
    """Read a key's frame once: that of a Paillier key takes long, and it comes again each round."""
    return scheme.from_bytes(frame)


@dataclass(frozen=True)
class RoundKeyCheck:
    """What clients and aggregator hold from set-up: nothing of it is secret."""

    signing_key: bytes
    """The key authority's Ed25519 public key, 32 bytes."""
    session: bytes
    """Of this federation alone: 16 bytes."""
    parameters: Mapping[str, Parameters]
    """By purpose, such as ``"update"``: what its keys are made for."""

    def read(self, message: Message, round_number: int, purpose: str) -> PublicKey:
        """Return the round's key for a purpose.

        Raises PolicyError where none comes along, KeyMismatchError for one that the authority did not sign for this
        round, session and purpose, or that is of other parameters; WireFormatError.
        """
        if _KEY + purpose not in message or _SIGNATURE + purpose not in message:
            raise PolicyError(
                f"the first message of round {round_number} brings no signed key for {purpose!r}: have the key "
                "authority begin the round, and pass on what it returns"
            )
        frame = bytes(message[_KEY + purpose])
        from cryptography.exceptions import InvalidSignature

        try:
            ed25519().Ed25519PublicKey.from_public_bytes(self.signing_key).verify(
                message[_SIGNATURE + purpose], signed_bytes(self.session, round_number, purpose, frame)
            )
        except InvalidSignature:
            raise KeyMismatchError(
                f"the key for {purpose!r} was not signed by this federation's key authority for round {round_number}, "
                "so nothing is encrypted under it: get the round's first message from the authority again"
            ) from None
        return self.read_frame(frame, purpose)

    def read_frame(self, frame: bytes, purpose: str) -> PublicKey:
        """Read a key whose signature was looked at. Raises KeyMismatchError for other parameters, WireFormatError."""
        own = self.parameters[purpose]
        key = _read_key(scheme_of(own).PublicKey, frame)
        if key.parameters != own:
            raise KeyMismatchError(f"the key for {purpose!r} is of other parameters than were agreed on")
        return key


class RoundKeyReader(Stateful):
    """The keys of the round that a client or the aggregator is in; those of earlier rounds are not taken again."""

    changes: ClassVar = {"_round": int, "_frames": dict[str, bytes]}

    def __init__(self, check: RoundKeyCheck) -> None:
        self.check = check
        self._round = -1
        self._keys: dict[str, PublicKey] = {}

    def begin_round(self, round_number: int, message: Message) -> None:
        """Take a round's keys from its first message; that for ``"update"`` has to be there.

        Raises PolicyError for a round before the one that it is in, for a second, different key of a round, and as
        :meth:`RoundKeyCheck.read` does. Then nothing has changed.
        """
        number = as_unsigned(round_number, "round_number")
        if number < self._round:
            raise PolicyError(
                f"round {number} is over since round {self._round} began, and so is the use of its keys: begin a "
                "later round"
            )
        there = [purpose for purpose in self.check.parameters if _KEY + purpose in message]
        keys = {purpose: self.check.read(message, number, purpose) for purpose in {"update", *there}}
        if number == self._round:
            if any(keys.get(purpose, key) != key for purpose, key in self._keys.items()):
                raise PolicyError(f"round {number} has another key already: begin a later round")
            keys = self._keys | keys
        self._round, self._keys = number, keys

    @property
    def _frames(self) -> dict[str, bytes]:
        return {purpose: key.to_bytes() for purpose, key in self._keys.items()}

    @_frames.setter
    def _frames(self, frames: dict[str, bytes]) -> None:
        if not frames.keys() <= self.check.parameters.keys():
            raise WireFormatError("a state holds a key for what is not encrypted")
        self._keys = {purpose: self.check.read_frame(frame, purpose) for purpose, frame in frames.items()}

    def key(self, round_number: int, purpose: str) -> Any:
        """Return the key for a purpose. Raises PolicyError where the round's first message did not bring it."""
        if round_number != self._round or purpose not in self._keys:
            raise PolicyError(
                f"there is no key for {purpose!r} of round {round_number}: begin the round with the key authority's "
                "first message, which brings it"
            )
        return self._keys[purpose]
