"""Checks that a round's public keys, model and answers were signed by the key authority for that round.

A CKKS pair serves one round (docs/explanation/dishonest-parties.md). So clients must tell a round's key from
a key that somebody else made, and from a key of an earlier round. The same holds for an answer that says
which positions are encrypted: a party that passes on another answer reads what that one leaves out.
"""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from shieldfl.array_view import as_unsigned
from shieldfl.authority.message import Message, Part, piece_of_each
from shieldfl.build_info import cryptographic
from shieldfl.encryption.enrolment import VERIFYING_KEY_BYTES, AuthorityGroup, AuthorityIdentity
from shieldfl.encryption.parameters import SchemeParameters, SchemePublicKey
from shieldfl.encryption.registry import scheme_of
from shieldfl.errors import KeyMismatchError, PolicyError, WireFormatError

SESSION_BYTES = 16
KEY_DOMAIN = b"shieldfl round key 1\0"
MODEL_DOMAIN = b"shieldfl round model 2\0"
ANSWER_DOMAIN = b"shieldfl round answer 1\0"
_KEY, _SIGNATURE, _MODEL = "round key ", "round signature ", "round model"
ANSWER_SIGNATURE = "round answer"
"""Name of the part with the key authority's signature of an answer."""
INVITED = "invited"
"""Name of the part of a round's first message that says who is invited: a mask of clients."""
_KEPT = 8

PublicKey = SchemePublicKey
Parameters = SchemeParameters[Any]


def ed25519() -> Any:
    """Return the module of Ed25519 signatures. Raises ShieldError if it is not installed."""
    return cryptographic("asymmetric.ed25519", "signed round keys")


def signed_bytes(domain: bytes, session: bytes, round_number: int, name: str, content: bytes) -> bytes:
    """Return the bytes that a signature covers: domain tag, session (16 bytes), round, name and content.

    For a key, the name is its purpose and the content its frame. For a model, the name is its part's, and the
    content is SHA-256 of who is invited, then the digest. For an answer, they are the phase and the digest.
    """
    named = name.encode()
    return domain + session + struct.pack("<QB", round_number, len(named)) + named + content


def checked_round(round_number: int, newest: int) -> int:
    """Return the number of a round that is to begin. Raises PolicyError for a round before the newest."""
    number = as_unsigned(round_number, "round_number")
    if number < newest:
        raise PolicyError(
            f"round {number} is over since round {newest} began, and its keys are gone: begin a later round"
        )
    return number


def model_signature_name(client: int | None = None) -> str:
    """Return the name of the part that signs a round's model: for one client, or for all with None."""
    return _MODEL if client is None else f"{_MODEL}:{client}"


def digest_of_parts(message: Message, but: Collection[str] = ()) -> bytes:
    """Return SHA-256, 32 bytes, of a message's parts; ``but`` names parts with signatures of their own.

    Parts are in the order of their names: for each the lengths of name (u8) and part (u64), then name and
    part.
    """
    digest = hashlib.sha256()
    for name, part in sorted(message.items()):
        if name not in but:
            digest.update(struct.pack("<BQ", len(name.encode()), len(part)) + name.encode())
            digest.update(part)
    return digest.digest()


def round_key_parts(message: Message) -> dict[str, Part]:
    return {name: part for name, part in message.items() if name.startswith((_KEY, _SIGNATURE))}


def encode_round_key(purpose: str, key_frame: bytes, signature: bytes) -> dict[str, bytes]:
    return {_KEY + purpose: key_frame, _SIGNATURE + purpose: signature}


@functools.lru_cache(maxsize=_KEPT)
def _read_key(scheme: type[PublicKey], frame: bytes) -> PublicKey:
    """Read a key's frame once: a Paillier key takes long to read, and comes again in each round."""
    return scheme.from_bytes(frame)


@functools.lru_cache(maxsize=_KEPT)
def _session_key(
    parameters: Parameters, manifest_digest: bytes, identity: AuthorityIdentity | AuthorityGroup
) -> PublicKey:
    key: PublicKey = scheme_of(parameters).PublicKey.of_session(parameters, manifest_digest, identity)
    return key


def is_signature(verifying_key: bytes, signature: bytes, signed: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        ed25519().Ed25519PublicKey.from_public_bytes(verifying_key).verify(signature, signed)
    except (InvalidSignature, ValueError):
        return False
    return True


_is_signature = functools.lru_cache(maxsize=_KEPT)(is_signature)
"""Checks each signature once: all clients of one process get the same ones."""


@dataclass(frozen=True)
class RoundKeyCheck:
    """Facts from set-up by which clients and aggregator check keys, models and answers; none is secret."""

    verifying_key: bytes
    """The key authority's Ed25519 public key, 32 bytes; those of several authorities one after the other."""
    session: bytes
    """Identifier of this federation alone: 16 bytes."""
    parameters: Mapping[str, Parameters]
    """The keys' parameters, by purpose, such as ``"update"``."""
    enrolment_key: bytes = b""
    """Public key, 1,216 bytes for each authority, that clients seal secrets to; empty if none enrols."""
    manifest_digest: bytes = b""
    """Digest of the public set-up, 32 bytes, if clients enrol: all keys depend on it."""

    @functools.cached_property
    def enrols(self) -> bool:
        return any(scheme_of(own).enrols for own in self.parameters.values())

    @functools.cached_property
    def identity(self) -> AuthorityIdentity | AuthorityGroup:
        """The key authority that clients enrol with, or the group of authorities that all have to answer."""
        count = len(self.verifying_key) // VERIFYING_KEY_BYTES
        verifying, sealing = (
            piece_of_each(self.verifying_key, count),
            piece_of_each(self.enrolment_key, count),
        )
        members = [
            AuthorityIdentity(bytes(own), bytes(key)) for own, key in zip(verifying, sealing, strict=True)
        ]
        return members[0] if count == 1 else AuthorityGroup(tuple(members))

    def session_key(self, purpose: str) -> PublicKey:
        """Return the public key of all rounds, if clients enrol; it follows from the pinned set-up."""
        return _session_key(self.parameters[purpose], self.manifest_digest, self.identity)

    def read(self, message: Message, round_number: int, purpose: str) -> PublicKey:
        """Return the round's key for a purpose; if clients enrol, the message does not have to bring it.

        Raises PolicyError for a missing key; KeyMismatchError for a key that was not signed, or has other
        parameters; WireFormatError.
        """
        if self.enrols:
            return self.session_key(purpose)
        if _KEY + purpose not in message or _SIGNATURE + purpose not in message:
            raise PolicyError(
                f"the first message of round {round_number} brings no signed key for {purpose!r}: have the "
                "key authority begin the round, and pass on what it returns"
            )
        frame = bytes(message[_KEY + purpose])
        if not self._has_signed(message[_SIGNATURE + purpose], KEY_DOMAIN, round_number, purpose, frame):
            raise KeyMismatchError(
                f"the key for {purpose!r} was not signed by this federation's key authority for round "
                f"{round_number}, so nothing is encrypted under it: get the round's first message from the "
                "authority again"
            )
        return self.read_frame(frame, purpose)

    def check_model(self, message: Message, round_number: int, client: int) -> None:
        """Check that a round's first message has what the authority signed, and nothing else.

        The authority signs the model and who is invited. Keys that :meth:`read` takes have signatures of
        their own; the model's signature covers everything else. Raises PolicyError if there is no signature,
        KeyMismatchError for another message.
        """
        own = model_signature_name(client)
        name = own if own in message else model_signature_name()
        if name not in message or INVITED not in message:
            raise PolicyError(
                f"the first message of round {round_number} brings no signature of its model, or does not "
                "say who is invited: have the key authority begin the round, and pass on what it returns"
            )
        read = [purpose for purpose in self.parameters if _KEY + purpose in message]
        keys = [kind + purpose for purpose in read for kind in (_KEY, _SIGNATURE)]
        content = hashlib.sha256(message[INVITED]).digest()
        content += digest_of_parts(message, but=[name, INVITED, *keys])
        if not self._has_signed(message[name], MODEL_DOMAIN, round_number, name, content):
            raise KeyMismatchError(
                f"the model was not signed by this federation's key authority for round {round_number} and "
                "this list of invited clients, so nothing is trained from it: get the round's first message "
                "from the authority again"
            )

    def check_answer(self, answer: Message, round_number: int, phase: str) -> None:
        """Raise PolicyError for an answer without a signature, KeyMismatchError unless it is signed whole."""
        if ANSWER_SIGNATURE not in answer:
            raise PolicyError(
                f"the answer to phase {phase!r} of round {round_number} brings no signature: ask the key "
                "authority, and pass on what it returns"
            )
        digest = digest_of_parts(answer, but=[ANSWER_SIGNATURE])
        if not self._has_signed(answer[ANSWER_SIGNATURE], ANSWER_DOMAIN, round_number, phase, digest):
            raise KeyMismatchError(
                f"the answer was not signed by this federation's key authority for phase {phase!r} of round "
                f"{round_number}, so it is not used: get it from the authority again"
            )

    def _has_signed(
        self, signature: Part, domain: bytes, round_number: int, name: str, content: bytes
    ) -> bool:
        signed = signed_bytes(domain, self.session, round_number, name, content)
        count = len(self.verifying_key) // VERIFYING_KEY_BYTES
        try:
            keys, signatures = piece_of_each(self.verifying_key, count), piece_of_each(signature, count)
            pairs = zip(keys, signatures, strict=True)
            return all(_is_signature(bytes(key), bytes(own), signed) for key, own in pairs)
        except WireFormatError:
            return False

    def read_frame(self, frame: bytes, purpose: str) -> PublicKey:
        """Read a key whose signature was checked.

        Raises KeyMismatchError for other parameters, WireFormatError.
        """
        own = self.parameters[purpose]
        if self.enrols:
            key = self.session_key(purpose)
            if key.to_bytes() != frame:
                raise KeyMismatchError(f"the key for {purpose!r} belongs to another session")
            return key
        key = _read_key(scheme_of(own).PublicKey, frame)
        if key.parameters != own:
            raise KeyMismatchError(f"the key for {purpose!r} has other parameters than were agreed on")
        return key


class RoundKeyReader:
    """The keys of the round in which a client or the aggregator is; keys of earlier rounds are refused."""

    changes: ClassVar = {"_round": int, "_frames": dict[str, bytes]}

    def __init__(self, check: RoundKeyCheck) -> None:
        self.check = check
        self._round = -1
        self._keys: dict[str, PublicKey] = {}

    def begin_round(self, round_number: int, message: Message) -> None:
        """Take a round's keys from its first message, which must have the one for ``"update"``.

        Raises PolicyError for a round that is over or has another key already, and what
        :meth:`RoundKeyCheck.read` raises.
        """
        number, check = checked_round(round_number, self._round), self.check
        there = [one for one in check.parameters if check.enrols or _KEY + one in message]
        keys = {purpose: check.read(message, number, purpose) for purpose in {"update", *there}}
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
            raise WireFormatError("the state holds a key for a purpose that is not encrypted")
        self._keys = {purpose: self.check.read_frame(frame, purpose) for purpose, frame in frames.items()}

    def key(self, round_number: int, purpose: str) -> Any:
        if round_number != self._round or purpose not in self._keys:
            raise PolicyError(
                f"there is no key for {purpose!r} of round {round_number}: begin the round with the key "
                "authority's first message, which brings it"
            )
        return self._keys[purpose]
