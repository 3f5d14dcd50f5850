"""How a client comes to share a secret with the key authority, whoever carries the bytes between them.

The client draws the secret and seals it to the authority's public key, which it has pinned: by HPKE (RFC 9180), with
ML-KEM-768 and X25519 together, so that the request stays sealed while either of both holds. The authority answers with
a grant under that secret: what opens the answers of this session, where clients are to open them.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

import shieldfl._core as _core
from shieldfl.array_view import Buffer, as_frame, as_unsigned
from shieldfl.build_info import cryptographic
from shieldfl.errors import KeyMismatchError, ParameterError, WireFormatError

SECRET_BYTES = 32
"""Of what a client and the authority share, and of what opens answers."""

MOST_AUTHORITIES: int = _core.ClientKey.most_authorities
"""That a session may have."""
OPENER = "aggregator"
"""In whose name an aggregator asks for what opens answers, where it does: it is no client, and is enrolled as none."""

VERIFYING_KEY_BYTES = 32
"""Of the Ed25519 key that an authority signs with."""

_MLKEM_BYTES = 1184
_X25519_BYTES = 32
ENROLMENT_KEY_BYTES = _MLKEM_BYTES + _X25519_BYTES
"""Of what secrets are sealed to."""

_MOST_NAME_BYTES = 255
_NAMED = 2**31
_NONCE_BYTES = 12

_IDENTITY_DOMAIN = b"shieldfl authority 1\0"
_GROUP_DOMAIN = b"shieldfl authorities 1\0"
_REQUEST_DOMAIN = b"shieldfl enrolment 1\0"
_GRANT_DOMAIN = b"shieldfl grant 1\0"
_HEAD = struct.Struct("<4sBIB")
_MAGIC, _VERSION = b"SHER", 1


@dataclass(frozen=True)
class AuthorityIdentity:
    """Who a key authority is: its public keys, which clients pin. Raises ParameterError for keys that cannot be."""

    verifying_key: bytes
    """Ed25519, 32 bytes: what it signs is checked by this."""
    enrolment_key: bytes
    """ML-KEM-768 and X25519, 1,216 bytes: secrets are sealed to it."""

    def __post_init__(self) -> None:
        if (len(self.verifying_key), len(self.enrolment_key)) != (VERIFYING_KEY_BYTES, ENROLMENT_KEY_BYTES):
            raise ParameterError("an authority's identity has keys of 32 and of 1,216 bytes")

    @property
    def id(self) -> bytes:
        """16 bytes that stand for both keys."""
        both = _IDENTITY_DOMAIN + self.verifying_key + self.enrolment_key
        return hashlib.blake2b(both, digest_size=16).digest()

    @property
    def members(self) -> tuple[AuthorityIdentity, ...]:
        """The authority alone: as a group would have it."""
        return (self,)

    epochs: ClassVar[tuple[int, ...]] = (0,)
    """An authority's epoch stands in its sessions' public keys."""

    def epoch_of(self, member: AuthorityIdentity) -> int | None:
        """Return None, as its sessions' public keys say it."""
        return None

    def to_bytes(self) -> bytes:
        """Encode: both keys, 1,248 bytes; :func:`read_identity` reads them."""
        return self.verifying_key + self.enrolment_key

    def seal(self, secret: bytes, context: bytes) -> bytes:
        """Seal a secret for the authority alone, bound to a context. Raises ParameterError for no valid key."""
        mlkem, x25519 = (cryptographic(f"asymmetric.{name}", "enrolments") for name in ("mlkem", "x25519"))
        first, second = self.enrolment_key[:_MLKEM_BYTES], self.enrolment_key[_MLKEM_BYTES:]
        try:
            public_key = hpke().MLKEM768X25519PublicKey(
                mlkem.MLKEM768PublicKey.from_public_bytes(first),
                x25519.X25519PublicKey.from_public_bytes(second),
            )
            return bytes(hpke_suite().encrypt(secret, public_key, context))
        except ValueError:
            raise ParameterError(
                "the authority's enrolment key is no public key: pin the right one"
            ) from None


@dataclass(frozen=True)
class AuthorityGroup:
    """Several authorities, two or three, each of which has to answer: one that is honest suffices to protect clients.

    Each client shares a secret with each of them, and encrypts under the sum of what follows from these. Raises
    ParameterError for too many or too few, or one that is named twice.
    """

    members: tuple[AuthorityIdentity, ...]
    """In the order in which answers are given to whoever opens."""
    epochs: tuple[int, ...] = ()
    """Of each one's store, when the session began; () for 0 of all. A member whose store was restored since refuses."""

    def __post_init__(self) -> None:
        if not 2 <= len(self.members) <= MOST_AUTHORITIES or len(set(self.members)) != len(self.members):
            raise ParameterError(f"a group is of two to {MOST_AUTHORITIES} different authorities")
        epochs = tuple(as_unsigned(epoch, "an epoch") for epoch in self.epochs or (0,) * len(self.members))
        if len(epochs) != len(self.members) or max(epochs) >= 2**32:
            raise ParameterError("a group has an epoch below 2**32 for each of its authorities")
        object.__setattr__(self, "epochs", epochs)

    @property
    def id(self) -> bytes:
        """16 bytes that stand for all members and their epochs, in their order."""
        named = self._with_epochs([member.id for member in self.members])
        return hashlib.blake2b(_GROUP_DOMAIN + named, digest_size=16).digest()

    def _with_epochs(self, members: list[bytes]) -> bytes:
        each = zip(members, self.epochs, strict=True)
        return b"".join(member + struct.pack("<I", epoch) for member, epoch in each)

    def epoch_of(self, member: AuthorityIdentity) -> int | None:
        return self.epochs[self.members.index(member)]

    def to_bytes(self) -> bytes:
        return self._with_epochs([member.to_bytes() for member in self.members])

    @classmethod
    def from_bytes(cls, data: bytes) -> AuthorityGroup:
        record = struct.Struct(f"<{VERIFYING_KEY_BYTES}s{ENROLMENT_KEY_BYTES}sI")
        try:
            read = list(record.iter_unpack(data))
            members = tuple(AuthorityIdentity(verifying, enrolment) for verifying, enrolment, _ in read)
            return cls(members, tuple(epoch for _, _, epoch in read))
        except (struct.error, ParameterError):
            raise WireFormatError("these bytes are no group of authorities") from None


Identity = AuthorityIdentity | AuthorityGroup | Buffer
"""Who has to answer, or what its ``to_bytes`` gave."""


def read_identity(data: Buffer) -> AuthorityIdentity | AuthorityGroup:
    """Read an authority's identity, or that of a group. Raises WireFormatError."""
    encoded = bytes(as_frame(data))
    if len(encoded) == VERIFYING_KEY_BYTES + ENROLMENT_KEY_BYTES:
        return AuthorityIdentity(encoded[:VERIFYING_KEY_BYTES], encoded[VERIFYING_KEY_BYTES:])
    return AuthorityGroup.from_bytes(encoded)


def hpke() -> Any:
    return cryptographic("hpke", "enrolments")


def hpke_suite() -> Any:
    module = hpke()
    return module.Suite(module.KEM.MLKEM768_X25519, module.KDF.HKDF_SHA256, module.AEAD.AES_256_GCM)


def client_number(client: int | str) -> int:
    """Return a client's number in frames: an integer below 2**31 itself, for a name 31 bits of its SHA-256 above that.

    Two names have one number with a chance of 2**-31; whoever comes second is refused, and takes another name. Raises
    ParameterError for what is neither.
    """
    return _numbered(client)[0]


def _numbered(client: int | str) -> tuple[int, bytes]:
    if isinstance(client, str):
        name = client.encode(errors="ignore")
        if name.decode() != client or not 0 < len(name) <= _MOST_NAME_BYTES:
            raise ParameterError(f"a client's name is text of 1 to {_MOST_NAME_BYTES} bytes")
        return _NAMED | int.from_bytes(hashlib.sha256(name).digest()[:4], "big") >> 1, name
    number = as_unsigned(client, "client")
    if number >= _NAMED:
        raise ParameterError(f"a client's number must be below 2**31, not {number}: give it a name")
    return number, b""


def request_context(session: bytes, client: int | str) -> bytes:
    number, name = _numbered(client)
    return _REQUEST_DOMAIN + struct.pack("<HIB", len(session), number, len(name)) + session + name


def request_frame(client: int | str, sealed: bytes) -> bytes:
    """Return what a client sends to the authority once: who it is, and a secret, sealed for the authority."""
    number, name = _numbered(client)
    return _HEAD.pack(_MAGIC, _VERSION, number, len(name)) + name + sealed


def sealed_request(identity: AuthorityIdentity, session: bytes, client: int | str, secret: bytes) -> bytes:
    """Seal a secret of 32 bytes for a session, whose id it is bound to, and a client, in a request."""
    return request_frame(client, identity.seal(secret, request_context(session, client)))


def read_request(data: Buffer) -> tuple[int | str, bytes]:
    """Return client and sealed secret of a request, which can be anybody's. Raises WireFormatError."""
    frame = bytes(as_frame(data))
    with suppress(struct.error, UnicodeDecodeError, ParameterError):
        _, _, number, length = _HEAD.unpack_from(frame)
        name_end = _HEAD.size + length
        client, sealed = frame[_HEAD.size : name_end].decode() or number, frame[name_end:]
        if request_frame(client, sealed) == frame:
            return client, sealed
    raise WireFormatError("these bytes are no enrolment request that this version can read")


def grant_key(secret: Buffer, session: bytes) -> bytes:
    """Return what grants to a client are sealed under, from the secret that it shares with the authority."""
    return hmac.digest(bytes(as_frame(secret)), _GRANT_DOMAIN + session, "sha256")


def sealed_grant(key: bytes, session: bytes, opening_key: bytes) -> bytes:
    """Seal what opens a session's answers; ``key`` is what :func:`grant_key` gave."""
    nonce = secrets.token_bytes(_NONCE_BYTES)
    cipher = cryptographic("ciphers.aead", "enrolments").AESGCM(key)
    return nonce + bytes(cipher.encrypt(nonce, opening_key, _GRANT_DOMAIN + session))


def read_grant(key: bytes, session: bytes, grant: Buffer) -> bytes:
    """Return what opens a session's answers. Raises KeyMismatchError for a grant of others, or that was altered."""
    frame = bytes(as_frame(grant))
    cipher = cryptographic("ciphers.aead", "enrolments").AESGCM(key)
    from cryptography.exceptions import InvalidTag

    try:
        return bytes(cipher.decrypt(frame[:_NONCE_BYTES], frame[_NONCE_BYTES:], _GRANT_DOMAIN + session))
    except (InvalidTag, ValueError):  # ValueError: too short
        raise KeyMismatchError(
            "the grant is of another client or session, or was altered: ask the key authority for it again"
        ) from None
