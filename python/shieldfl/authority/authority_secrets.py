"""What makes a key authority itself: what it signs with, what secrets are sealed to, what opens its answers."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import Any

from shieldfl.array_view import Buffer
from shieldfl.authority.authority_store import ENROLMENT_HAS_ENDED
from shieldfl.build_info import cryptographic
from shieldfl.encryption.enrolment import (
    SECRET_BYTES,
    AuthorityGroup,
    AuthorityIdentity,
    EnrolmentRequest,
    hpke,
    hpke_suite,
)
from shieldfl.errors import KeyMismatchError, ParameterError, PolicyError
from shieldfl.stateful import Uncopied

_SIGNING_BYTES = 32
_PUBLIC_BYTES = 1216
_MLKEM_BYTES = 64
_OPENING_DOMAIN = b"shieldfl opening key 1\0"
EXPORTED_BYTES = _SIGNING_BYTES + _PUBLIC_BYTES + 2 * SECRET_BYTES
"""Of what :meth:`AuthoritySecrets.export` returns."""


class AuthoritySecrets(Uncopied):
    """Drawn from the operating system, or taken from :meth:`export`, then without what opens requests.

    That is the enrolment key, which goes before the rest does: whoever has recorded requests and gets hold of it later
    has every client's first key, and from it those of all rounds. Raises ParameterError; ShieldError.
    """

    _why_uncopied = "hold secret keys and are neither copied nor pickled"

    def __init__(self, exported: bytes | None = None) -> None:
        ed25519 = cryptographic("asymmetric.ed25519", "key authorities")
        self._enrolment: tuple[Any, Any] | None = None
        if exported is None:
            self.signing_key: Any = ed25519.Ed25519PrivateKey.generate()
            mlkem, x25519 = _enrolment_modules()
            self._enrolment = mlkem.MLKEM768PrivateKey.generate(), x25519.X25519PrivateKey.generate()
            public_key = _public_bytes(self._enrolment)
            self._opening_root = secrets.token_bytes(SECRET_BYTES)
            self.store_key = secrets.token_bytes(SECRET_BYTES)
        else:
            if len(exported) != EXPORTED_BYTES:
                raise ParameterError(f"an authority's secrets have {EXPORTED_BYTES} bytes")
            lengths = (_SIGNING_BYTES, _PUBLIC_BYTES, SECRET_BYTES, SECRET_BYTES)
            ends = [sum(lengths[: n + 1]) for n in range(len(lengths))]
            parts = [exported[end - length : end] for end, length in zip(ends, lengths, strict=True)]
            self.signing_key = ed25519.Ed25519PrivateKey.from_private_bytes(parts[0])
            public_key, self._opening_root, self.store_key = parts[1:]
        self.identity = AuthorityIdentity(self.signing_key.public_key().public_bytes_raw(), public_key)
        """Of these, what is public."""

    @property
    def store_id(self) -> bytes:
        """Whose the authority's store is, 32 bytes."""
        return hashlib.sha256(self.identity.id).digest()

    def export(self) -> bytes:
        """Return all of them but the enrolment key, for a sealed file."""
        return bytes(
            self.signing_key.private_bytes_raw()
            + self.identity.enrolment_key
            + self._opening_root
            + self.store_key
        )

    def opening_key(self, manifest_digest: bytes) -> bytes:
        """Return what opens the answers of the sessions with this manifest, and of no others: 32 bytes, secret."""
        return hmac.digest(self._opening_root, _OPENING_DOMAIN + manifest_digest, "sha256")

    @property
    def enrolment_key(self) -> bytes | None:
        """What opens requests, 96 bytes; secret. None before it was taken, and once it is erased."""
        enrolment = self._enrolment  # read once: it may be erased meanwhile
        if enrolment is None:
            return None
        mlkem, x25519 = enrolment
        return bytes(mlkem.private_bytes_raw() + x25519.private_bytes_raw())

    def take_enrolment_key(self, key: bytes | None) -> None:
        """Take what opens requests, None to erase it. Raises ParameterError for the key of another authority."""
        if key is None:
            self._enrolment = None
            return
        held = self.enrolment_key
        if held is not None and isinstance(key, bytes) and hmac.compare_digest(held, key):
            return  # as with each client that enrols: to make its public key anew takes a third of an enrolment's time
        mlkem, x25519 = _enrolment_modules()
        try:
            taken = (
                mlkem.MLKEM768PrivateKey.from_seed_bytes(key[:_MLKEM_BYTES]),
                x25519.X25519PrivateKey.from_private_bytes(key[_MLKEM_BYTES:]),
            )
            is_own = _public_bytes(taken) == self.identity.enrolment_key
        except (TypeError, ValueError):
            is_own = False
        if not is_own:
            raise ParameterError("this is not what opens requests to this key authority")
        self._enrolment = taken

    def unseal(self, request: Buffer, session: bytes) -> tuple[int | str, bytes]:
        """Return who asks to be enrolled in a session, and the secret that it shares from now on, 32 bytes.

        Raises WireFormatError for what is no request, KeyMismatchError for one that was sealed to another authority or
        for another session, or was altered; PolicyError once the enrolment key was erased.
        """
        asked = EnrolmentRequest.from_bytes(request)
        enrolment = self._enrolment  # read once: it may be erased meanwhile
        if enrolment is None:
            raise PolicyError(ENROLMENT_HAS_ENDED)
        private_key = hpke().MLKEM768X25519PrivateKey(*enrolment)
        suite = hpke_suite()
        from cryptography.exceptions import InvalidTag

        try:
            secret = suite.decrypt(asked.sealed, private_key, asked.context(session, asked.client))
        except (InvalidTag, ValueError):  # ValueError: too short
            secret = b""
        if len(secret) != SECRET_BYTES:
            raise KeyMismatchError(
                "the request was sealed to another key authority or for another session, or was altered: make it anew "
                "from this session's public key"
            )
        return asked.client, bytes(secret)


@dataclass(frozen=True)
class JointKeys:
    """An authority's own secrets, and all those that have to answer beside it.

    Raises ParameterError for a group that the authority is not in.
    """

    owner: AuthoritySecrets
    """Drawn for this session alone: the others know what is public of them."""
    group: AuthorityGroup
    """In the order in which their parts of requests and answers stand."""

    def __post_init__(self) -> None:
        if self.owner.identity not in self.group.members:
            raise ParameterError("the session is of other key authorities than this one")


def _enrolment_modules() -> tuple[Any, Any]:
    mlkem, x25519 = (cryptographic(f"asymmetric.{name}", "key authorities") for name in ("mlkem", "x25519"))
    return mlkem, x25519


def _public_bytes(enrolment: tuple[Any, Any]) -> bytes:
    return b"".join(key.public_key().public_bytes_raw() for key in enrolment)
